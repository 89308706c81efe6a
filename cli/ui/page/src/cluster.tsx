// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { to, useStream } from "./api";
import type { Route } from "./api";
import { ago, count, nanoseconds, percent, plural, short } from "./format";
import { Commands, Loading, OwnerLink, Problems, Section, Select, State, Table, stateWords, useNow } from "./parts";
import type { Column } from "./parts";
import type * as views from "./views";

const filters = ["text", "type", "image", "namespace", "owner"] as const;

export function ClusterView(props: { route: Route }) {
  const { query } = props.route;
  const stream = useStream<views.Cluster>("api/cluster?" + query.toString());
  // While another filter is applied, the last view stays.
  const last = useRef<views.Cluster>(undefined);
  if (stream.view) last.current = stream.view;
  const view = last.current;
  const usage = useStream<views.Usage>("api/usage");
  return (
    <main>
      <h1 class="hidden">Cluster</h1>
      <Problems stream={stream} />
      {!view ? <Loading stream={stream} /> : (
        <>
          <Totals view={view} usage={usage.view} />
          <div class="columns worst">
            <div>
              <Filters query={query} choices={view.choices} />
              <NodeMap cells={view.nodes} totals={view.totals.nodes} />
              <Programs rows={view.programs} usage={usage.view} problem={usage.problem} />
            </div>
            <div>
              <Objects objects={view.objects} filtered={query.toString() !== ""} />
              <Changes changes={view.changes} />
            </div>
          </div>
          <Commands of={["why", "programs", "top"]} />
        </>
      )}
    </main>
  );
}

function Totals(props: { view: views.Cluster; usage?: views.Usage }) {
  const { nodes, objects, programs, bpfman, conflicts, conflicting } = props.view.totals;
  const all = Object.values(nodes).reduce((a, b) => a + b, 0);
  const declared = Object.values(objects).reduce((a, b) => a + b, 0);
  const used = Object.values(props.usage?.programs ?? {});
  const cpu = used.reduce((sum, u) => sum + u.cpu, 0);
  const failing = nodes["failed"] ?? 0;
  const [tone, summary] = objects["Failed"] ? ["bad", `${count(objects["Failed"])} failed`]
    : objects["Idle"] ? ["idle", `${count(objects["Idle"])} with nothing to attach to`] : ["", `${count(objects["Attached"] ?? 0)} as specified`];
  return (
    <ul class="totals" aria-label="Totals">
      <li><strong>{count(all)}</strong> <span>node{all === 1 ? "" : "s"}</span>
        <small class={failing ? "bad" : ""}>{failing ? `${count(failing)} with a failure` : `${count((nodes["healthy"] ?? 0) + (nodes["unmatched"] ?? 0))} healthy`}</small></li>
      <li><strong>{count(declared)}</strong> <span>object{declared === 1 ? "" : "s"}</span>
        <small class={tone}>{summary}</small></li>
      <li><strong>{count(programs)}</strong> <span>program{programs === 1 ? "" : "s"}</span>
        <small>{count(bpfman)} of bpfman</small></li>
      <li><strong>{count(conflicts)}</strong> <span>conflict{conflicts === 1 ? "" : "s"}</span>
        <small class={conflicts ? "doubt" : ""}>{conflicts ? `on ${plural(conflicting, "node")}` : "nothing in the way"}</small></li>
      <li><strong>{props.usage ? percent(cpu / Math.max(props.usage.nodes, 1)) : "–"}</strong> <span>CPU per node</span>
        <small>{props.usage ? `measured on ${count(props.usage.nodes)} of ${plural(props.usage.of, "node")}` : "not measured"}</small></li>
    </ul>
  );
}

function Filters(props: { query: URLSearchParams; choices: views.Choices }) {
  const { query, choices } = props;
  const [typed, setTyped] = useState(query.get("text") ?? "");
  const applied = query.get("text") ?? "";
  const value = (name: string) => query.get(name) ?? "";
  // What is typed is applied with whatever else is selected meanwhile.
  const set = (name: string, chosen: string) => {
    const parameters: Record<string, string> = {};
    for (const f of filters) parameters[f] = f === name ? chosen : f === "text" ? typed : value(f);
    location.hash = to("cluster", parameters);
  };
  useEffect(() => setTyped(applied), [applied]); // by Back, or by a link
  useEffect(() => {
    if (typed === applied) return undefined;
    const timer = setTimeout(() => set("text", typed), 200);
    return () => clearTimeout(timer);
  }, [typed, query.toString()]);
  return (
    <form class="filters" aria-label="Filters" onSubmit={(e) => e.preventDefault()}>
      <label class="filter search"><span>Find</span>
        <input type="search" value={typed} placeholder="program, object, image" onInput={(e) => setTyped(e.currentTarget.value)} /></label>
      <Select label="Type" value={value("type")} choices={choices.types} change={(v) => set("type", v)} />
      <Select label="Owner" value={value("owner")} choices={choices.owners} change={(v) => set("owner", v)} />
      <Select label="Namespace" value={value("namespace")} choices={choices.namespaces} change={(v) => set("namespace", v)} />
      <Select label="Image" value={value("image")} choices={choices.images} change={(v) => set("image", v)} />
    </form>
  );
}

const healths = ["failed", "notready", "conflict", "unknown", "unmatched", "idle", "healthy"];

/** NodeMap shows one cell for each node. The more nodes, the smaller the cells. */
export function NodeMap(props: { cells: { name: string; health: string; why?: string; bpfman?: number; others?: number }[]; totals: Record<string, number>; title?: string }) {
  const { cells } = props;
  const [focus, setFocus] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const size = cells.length <= 48 ? "tiles" : cells.length <= 400 ? "large" : cells.length <= 1500 ? "medium" : "small";
  const move = (e: KeyboardEvent) => {
    const links = list.current?.querySelectorAll<HTMLAnchorElement>("a");
    if (!links || links.length === 0) return;
    const across = Math.max(1, [...links].findIndex((l) => l.offsetTop !== links[0]?.offsetTop));
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -Infinity, End: Infinity }[e.key];
    if (step === undefined) return;
    e.preventDefault();
    const next = Math.min(links.length - 1, Math.max(0, focus + step));
    setFocus(next);
    links[next]?.focus();
  };
  const map = useMemo(() => cells.map((c, i) => {
    const words = stateWords[c.health] ?? c.health;
    const label = `${c.name}: ${words}${c.why ? ": " + c.why : ""}`;
    return (
      <a key={c.name} class={"cell " + c.health} href={to("node", { name: c.name })} tabIndex={i === focus ? 0 : -1} aria-label={label} title={label} onFocus={() => setFocus(i)}>
        {size === "tiles" && <><b>{c.name}</b><small>{c.health === "healthy" || c.health === "unmatched" ? (c.bpfman === undefined ? words : `${count(c.bpfman)} of bpfman, ${count(c.others ?? 0)} others`) : (c.why ?? words)}</small></>}
      </a>
    );
  }), [cells, focus, size]);
  return (
    <Section title={props.title ?? "Nodes"} note={<Legend totals={props.totals} />}>
      {cells.length === 0 ? <p class="empty">No nodes are known yet.</p> : <div class={"map " + size} ref={list} onKeyDown={move} role="group" aria-label="Nodes">{map}</div>}
    </Section>
  );
}

function Legend(props: { totals: Record<string, number> }) {
  return <>{healths.filter((h) => props.totals[h]).map((h) => <span class="legend" key={h}><i class={"cell " + h} aria-hidden="true" />{stateWords[h] ?? h} {count(props.totals[h] ?? 0)}</span>)}</>;
}

function Programs(props: { rows: views.Row[]; usage?: views.Usage; problem?: string }) {
  const used = (r: views.Row) => props.usage?.programs[r.key];
  const columns: Column<views.Row>[] = [
    { name: "Program", cell: (r) => <><span class={"dot " + (r.bpfman ? "ours" : "")} aria-hidden="true" />{r.name || "(no name)"}</>, by: (r) => r.name },
    { name: "Type", cell: (r) => r.type, by: (r) => r.type, minor: true },
    { name: "Owner", cell: (r) => (r.owner ? <OwnerLink owner={r.owner} /> : r.owned || <span class="faint">not known</span>), by: (r) => r.owned ?? "" },
    { name: "Nodes", cell: (r) => (r.nodes === 1 ? <a href={to("node", { name: r.node })}>{r.node}</a> : count(r.nodes)), by: (r) => r.nodes, number: true, minor: true },
    { name: "CPU", cell: (r) => (used(r) ? percent(used(r)?.cpu ?? 0) : ""), by: (r) => used(r)?.cpu ?? 0, number: true },
    { name: "Runs/s", cell: (r) => (used(r) ? short(used(r)?.runs ?? 0) : ""), by: (r) => used(r)?.runs ?? 0, number: true, minor: true },
    { name: "Per run", cell: (r) => (used(r)?.runs ? nanoseconds(used(r)?.perRun ?? 0) : ""), by: (r) => used(r)?.perRun ?? 0, number: true, minor: true },
  ];
  const measured = props.usage ? (props.usage.nodes < props.usage.of ? `CPU and runs: sum of ${props.usage.nodes} of ${count(props.usage.of)} nodes` : "CPU and runs: sum of all nodes") : "";
  return (
    <Section title="Programs" class="programs" note={[plural(props.rows.length, "program"), measured].filter(Boolean).join(" · ")}>
      {props.problem && <p class="notice">Run times aren't live: {props.problem}</p>}
      {!props.problem && props.usage?.problem && <p class="notice">Run times are incomplete: {props.usage.problem}</p>}
      <Table label="Programs" columns={columns} rows={props.rows} id={(r) => r.key} empty="No program matches." tall sorted="CPU" />
    </Section>
  );
}

function Objects(props: { objects: views.Brief[]; filtered: boolean }) {
  const [all, setAll] = useState(false);
  const worrying = props.objects.filter((o) => o.state !== "Attached" || o.conflicts || o.rollout === "Paused" || o.rollout === "Halted");
  const shown = all ? props.objects : worrying;
  const fine = props.objects.length - worrying.length;
  return (
    <Section title="Objects" class="objects" note={props.objects.length > 0 && fine > 0 && <button type="button" class="link" onClick={() => setAll(!all)}>{all ? "only those that need a look" : `show the ${fine === 1 ? "one that is" : count(fine) + " that are"} as specified`}</button>}>
      {props.objects.length === 0 && <p class="empty">{props.filtered ? "No object matches." : "There are no objects of bpfman."}</p>}
      {props.objects.length > 0 && shown.length === 0 && <p class="empty good">{props.filtered ? "What matches is as specified." : "Everything is as specified."}</p>}
      <ul class="briefs">
        {shown.slice(0, 200).map((o) => (
          <li key={o.kind + o.namespace + o.name}>
            <div class="line"><OwnerLink owner={o} /><State state={o.state} /></div>
            {o.counts && o.counts.selected > 0 && <Bar counts={o.counts} />}
            {o.message && <p class="message clamp" title={o.message}>{o.message}</p>}
            {o.conflicts?.map((c) => <p class="message doubt" key={c}>{c}</p>)}
            {o.moreConflicts ? <p class="message doubt">and on {plural(o.moreConflicts, "more node")}</p> : null}
            {o.remedy && <p class="todo">{o.remedy}</p>}
          </li>
        ))}
      </ul>
    </Section>
  );
}

/** Bar shows the nodes of an object by state. */
export function Bar(props: { counts: views.NodeCounts }) {
  const { selected, attached, idle, failed } = props.counts;
  const waiting = Math.max(0, selected - attached - idle - failed);
  const parts: [string, number, string][] = [["good", attached, "attached"], ["idle", idle, "nothing to attach to"], ["bad", failed, "failed"], ["waiting", waiting, "not reported yet"]];
  const words = parts.filter(([, n]) => n > 0).map(([, n, what]) => `${count(n)} ${what}`).join(", ");
  return (
    <div class="bar">
      <span class="track" aria-hidden="true">{parts.map(([tone, n]) => n > 0 && <i class={tone} style={{ flexGrow: n }} key={tone} />)}</span>
      <small>{words} of {plural(selected, "node")}</small>
    </div>
  );
}

function Changes(props: { changes: views.Change[] }) {
  const now = useNow();
  return (
    <Section title="In the last hour" note={plural(props.changes.length, "change")}>
      {props.changes.length === 0 && <p class="empty">Nothing changed.</p>}
      <ul class="changes long" tabIndex={0}>
        {props.changes.slice(0, 60).map((c) => (
          <li key={c.at + c.what + c.message} class={c.warning ? "doubt" : ""}>
            <time dateTime={c.at} title={new Date(c.at).toLocaleString()}>{ago(c.at, now)}</time>
            <div><b>{c.what}</b> {c.owner && <OwnerLink owner={c.owner} short />}{c.more ? ` and ${count(c.more)} more` : ""}<p class="clamp" title={c.message}>{c.message}</p></div>
          </li>
        ))}
      </ul>
    </Section>
  );
}
