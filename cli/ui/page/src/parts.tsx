// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// The parts that views share.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { session, to } from "./api";
import type { Stream } from "./api";
import { ago, count } from "./format";
import type { BpfNodeOwner } from "./views";

/** Section is a titled part of a view. */
export function Section(props: { title: string; note?: ComponentChildren; children: ComponentChildren; class?: string }) {
  return (
    <section class={"section " + (props.class ?? "")} aria-label={props.title}>
      <header><h2>{props.title}</h2>{props.note && <span class="note">{props.note}</span>}</header>
      {props.children}
    </section>
  );
}

/** tones maps states of objects, nodes, and rollouts to the colors with a meaning. */
const tones: Record<string, string> = {
  failed: "bad", Failed: "bad", Halted: "bad", Undone: "bad", Denied: "bad", NotReported: "doubt", NoAgent: "doubt", Outdated: "doubt", Left: "doubt",
  conflict: "doubt", notready: "off", unknown: "off", Warned: "doubt", Unknown: "doubt", Attached: "good", healthy: "good", Allowed: "good", Complete: "good",
  RollingOut: "busy", Progressing: "busy", Paused: "busy", Idle: "idle", idle: "idle",
};

/** stateWords are the names of states for readers, as kubectl bpfman why prints them. */
export const stateWords: Record<string, string> = {
  Failed: "failed", NotReported: "not reported yet", RollingOut: "rolling out", NoAgent: "no agent", Outdated: "not up to date", Left: "no longer selected",
  Idle: "nothing to attach to", Attached: "attached", idle: "nothing to attach to", notready: "not ready", conflict: "needs a look", unmatched: "without a match",
};

export function State(props: { state: string }) {
  return <span class={"state " + (tones[props.state] ?? "")}>{stateWords[props.state] ?? props.state.toLowerCase()}</span>;
}

/** ownerName names an object. */
export function ownerName(o: BpfNodeOwner): string {
  return o.namespace ? `${o.namespace}/${o.name}` : o.name;
}

const policies = ["BytecodePolicy", "RolloutPolicy"];

export function OwnerLink(props: { owner: BpfNodeOwner; short?: boolean }) {
  const { kind, namespace, name } = props.owner;
  const label = <>{!props.short && <span class="kind">{kind} </span>}{ownerName(props.owner)}</>;
  if (policies.includes(kind)) return <span>{label}</span>;
  return <a href={to("object", { kind, namespace, name })}>{label}</a>;
}

/** ofComponents matches the commands that need to know where bpfman is installed. */
const ofComponents = /^(why|top|dump|trace|rollout (history|undo))\b/;

/** Commands shows the commands of kubectl for a view. */
export function Commands(props: { of: string[] }) {
  const [copied, setCopied] = useState("");
  const copy = (command: string) => {
    void navigator.clipboard.writeText(command).then(() => {
      setCopied(command);
      setTimeout(() => setCopied(""), 1500);
    });
  };
  return (
    <Section title="The kubectl command for this" class="commands">
      {props.of.map((short) => {
        const installed = session?.components && ofComponents.test(short) ? ` --bpfman-namespace ${session.components}` : "";
        const command = `kubectl bpfman ${short}${session?.flags ?? ""}${installed}`;
        return (
          <div class="command" key={command}>
            <code tabIndex={0}>{command}</code>
            <button type="button" onClick={() => copy(command)} aria-label={"Copy " + command}>{copied === command ? "Copied" : "Copy"}</button>
          </div>
        );
      })}
    </Section>
  );
}

/** Problems says what a view can't show. */
export function Problems(props: { stream: Stream<{ unseen?: string[]; reading?: string[]; components?: string[] }> }) {
  const { view, problem, at, ended } = props.stream;
  const reading = view?.reading ?? [];
  return (
    <div role="status" class="problems">
      {problem && (
        <p class="notice bad">
          <strong>{ended ? "The session has ended." : "Not live."}</strong> {ended ? "Run kubectl bpfman ui, or press Enter where it runs, and open the address that it prints." : problem}
          {at !== undefined && <> This is what was known {ago(at)} ago.</>}
        </p>
      )}
      {reading.length > 0 && <p class="notice">Reading {reading.length > 3 ? `${reading.length} resources` : reading.join(", ")}…</p>}
      {(view?.components ?? []).map((line) => <p class="notice doubt" key={line}><strong>Node components:</strong> {line}</p>)}
      {view?.unseen?.length === 1 && <p class="notice doubt"><strong>Can't be read:</strong> {view.unseen[0]}</p>}
      {(view?.unseen ?? []).length > 1 && (
        <details class="notice doubt">
          <summary>{view?.unseen?.length} things can't be read.</summary>
          <ul>{view?.unseen?.map((line) => <li key={line}>{line}</li>)}</ul>
        </details>
      )}
    </div>
  );
}

/** Loading is shown until the first view arrives. */
export function Loading(props: { stream: Stream<unknown> }) {
  return props.stream.problem ? null : <p class="loading" role="status">Reading the cluster…</p>;
}

/** Column is a column of a table. */
export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  /** by returns what rows are sorted by. */
  by?: (row: T) => string | number | bigint;
  number?: boolean;
  /** minor columns aren't shown on a phone. */
  minor?: boolean;
}

const rowHeight = 34;
const spare = 12;

/** Table shows rows. It only renders those that are visible, so that it can have thousands. */
export function Table<T>(props: { label: string; columns: Column<T>[]; rows: T[]; id: (row: T) => string; empty: string; tall?: boolean; sorted?: string }) {
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [sorted, setSorted] = useState(props.sorted ? { by: props.sorted, down: true } : undefined);
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const rows = useMemo(() => {
    const by = props.columns.find((c) => c.name === sorted?.by)?.by;
    if (!by || !sorted) return props.rows;
    const direction = sorted.down ? -1 : 1;
    return [...props.rows].sort((a, b) => direction * (by(a) < by(b) ? -1 : by(a) > by(b) ? 1 : 0));
  }, [props.rows, sorted, props.columns]);
  if (props.rows.length === 0) return <p class="empty">{props.empty}</p>;
  const all = rows.length <= 60;
  const first = all ? 0 : Math.max(0, Math.floor(top / rowHeight) - spare);
  const last = all ? rows.length : Math.min(rows.length, Math.ceil((top + height) / rowHeight) + spare);
  const header = (c: Column<T>) => {
    const active = sorted?.by === c.name;
    const sort = () => setSorted(active && sorted.down === !!c.number ? { by: c.name, down: !c.number } : { by: c.name, down: !!c.number });
    return (
      <th scope="col" class={cellClass(c)} aria-sort={active ? (sorted.down ? "descending" : "ascending") : undefined} key={c.name}>
        {c.by ? <button type="button" onClick={sort}>{c.name}<span aria-hidden="true">{active ? (sorted.down ? " ↓" : " ↑") : ""}</span></button> : c.name}
      </th>
    );
  };
  return (
    <div class={"scroller" + (props.tall ? " tall" : "")} ref={scroller} onScroll={(e) => setTop(e.currentTarget.scrollTop)} tabIndex={0} role="region" aria-label={props.label}>
      <table aria-rowcount={rows.length + 1}>
        <thead><tr>{props.columns.map(header)}</tr></thead>
        <tbody>
          {first > 0 && <tr aria-hidden="true" style={{ height: `${first * rowHeight}px` }}><td colSpan={props.columns.length} /></tr>}
          {rows.slice(first, last).map((row, i) => (
            <tr key={props.id(row)} aria-rowindex={first + i + 2}>
              {props.columns.map((c) => <td class={cellClass(c)} key={c.name}>{c.cell(row)}</td>)}
            </tr>
          ))}
          {last < rows.length && <tr aria-hidden="true" style={{ height: `${(rows.length - last) * rowHeight}px` }}><td colSpan={props.columns.length} /></tr>}
        </tbody>
      </table>
    </div>
  );
}

function cellClass<T>(c: Column<T>): string {
  return (c.number ? "number " : "") + (c.minor ? "minor" : "");
}

/** Select is a filter. */
export function Select(props: { label: string; value: string; choices: string[]; change: (value: string) => void }) {
  const choices = props.value && !props.choices.includes(props.value) ? [props.value, ...props.choices] : props.choices;
  return (
    <label class="filter">
      <span>{props.label}</span>
      <select value={props.value} onChange={(e) => props.change(e.currentTarget.value)} disabled={choices.length === 0}>
        <option value="">all</option>
        {choices.map((c) => <option value={c} key={c}>{c}</option>)}
      </select>
    </label>
  );
}

/** Spark draws the last values of a figure. */
export function Spark(props: { values: number[]; label: string }) {
  const { values } = props;
  const width = 64, height = 16, most = Math.max(...values, 0);
  const points = values.map((v, i) => `${((i * width) / Math.max(values.length - 1, 1)).toFixed(1)},${(height - 1 - (most > 0 ? (v / most) * (height - 2) : 0)).toFixed(1)}`);
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="img" aria-label={props.label}>
      {values.length > 1 && <polyline points={points.join(" ")} />}
    </svg>
  );
}

/** CPUs draws a figure of each CPU. */
export function CPUs(props: { values: number[]; what: string }) {
  const { values } = props;
  const wide = 4, height = 18, most = Math.max(...values, 1);
  const label = `${props.what} by CPU: ${values.map(count).join(", ")}`;
  return (
    <svg class="cpus" viewBox={`0 0 ${values.length * wide} ${height}`} width={Math.min(values.length * wide, 128)} height={height} preserveAspectRatio="none" role="img" aria-label={label}>
      <title>{label}</title>
      {values.map((v, i) => <rect key={i} x={i * wide} width={wide - 1} y={height - 1 - (v / most) * (height - 1)} height={1 + (v / most) * (height - 1)} />)}
    </svg>
  );
}

/** useHistory keeps the last values of figures by key. */
export function useHistory(length = 60): { add: (figures: Record<string, number>) => void; of: (key: string) => number[] } {
  const kept = useRef(new Map<string, number[]>());
  return {
    add: (figures) => {
      for (const [key, values] of kept.current) {
        if (!(key in figures)) values.push(0);
        if (values.length > length) values.shift();
        if (values.every((v) => v === 0)) kept.current.delete(key);
      }
      for (const [key, figure] of Object.entries(figures)) {
        const values = kept.current.get(key);
        if (values) values.push(figure);
        else kept.current.set(key, [figure]);
      }
    },
    of: (key) => kept.current.get(key) ?? [],
  };
}

/** useNow updates ages. */
export function useNow(every = 5000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/** Facts is a list of names and values. */
export function Facts(props: { of: [string, ComponentChildren][] }): JSX.Element {
  return <dl class="facts">{props.of.filter(([, value]) => value !== undefined && value !== "" && value !== null && value !== false).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}
