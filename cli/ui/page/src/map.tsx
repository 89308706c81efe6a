// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { exact, to, useStream } from "./api";
import type { Route } from "./api";
import { count, plural, short, text } from "./format";
import { Commands, CPUs, Facts, Loading, Problems, Section, Spark, Table, useHistory } from "./parts";
import type { Column } from "./parts";
import type * as views from "./views";

export function MapView(props: { route: Route }) {
  const { query } = props.route;
  const node = query.get("node") ?? "", name = query.get("name") ?? "";
  const stream = useStream<views.Dump>("api/map?" + query.toString(), undefined, exact);
  const dump = stream.view;
  const history = useHistory(span / 2 + 1);
  const rates = useRates(dump, history.add);
  const id = dump?.map.id ?? query.get("id");
  const title = name || dump?.map.name || id;
  return (
    <main>
      <h1><span class="kind">Map</span> {title} <small>on <a href={to("node", { name: node })}>{node}</a></small></h1>
      <Problems stream={stream as object} />
      {!dump ? <Loading stream={stream} /> : (
        <>
          <Facts of={[
            ["ID", String(dump.map.id)], ["Type", dump.map.type], ["Key", plural(dump.map.keySize, "byte")], ["Value", plural(dump.map.valueSize, "byte") + (dump.map.perCPU ? " for each CPU; shown as the sum" : "")],
            ["Entries", `${count(dump.end.entries)} of at most ${count(dump.map.maxEntries)}`],
          ]} />
          {!dump.map.hasBTF && <p class="notice">The map has no BTF, so its content is shown as hexadecimal digits. Compile the program with -g.</p>}
          {dump.end.truncated && <p class="notice">Only the first {count(dump.end.entries)} entries are shown.</p>}
          {dump.end.changed && <p class="notice">The map changed while it was read: entries can be missing.</p>}
          <Content dump={dump} rates={rates} history={history.of} />
        </>
      )}
      <Commands of={[`dump --node ${node} --map-id ${id ?? "ID"} --watch`]} />
    </main>
  );
}

type Figure = number | bigint;

function isFigure(value: unknown): value is Figure {
  return typeof value === "number" || typeof value === "bigint";
}

/** numbers returns the numbers in a value, by the path of their fields. */
function numbers(value: unknown, path = ""): Record<string, Figure> {
  if (isFigure(value)) return { [path]: value };
  if (value === null || typeof value !== "object" || Array.isArray(value)) return {};
  return Object.assign({}, ...Object.entries(value).map(([name, of]) => numbers(of, path ? path + "." + name : name)));
}

const series = (key: string, field: string) => key + "\u0000" + field;

/** difference subtracts without rounding the operands. */
function difference(a: Figure, b: Figure): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return Number.isInteger(Number(a)) && Number.isInteger(Number(b)) ? Number(BigInt(a) - BigInt(b)) : Number(a) - Number(b);
}

/** remembered is how long a key that a dump lacks is remembered, in milliseconds. A dump of a map that changes can lack
 * keys that are there. */
const remembered = 10_000;

/** useRates returns the change of each number per second, since the last dump that had it. A number that is new has no
 * rate, because what it was before isn't known. */
function useRates(dump: views.Dump | undefined, add: (figures: Record<string, number>) => void): Record<string, number> {
  const last = useRef<{ at: number; of: Map<string, { at: number; n: Figure }>; id: number } | undefined>(undefined);
  const [rates, setRates] = useState<Record<string, number>>({});
  useEffect(() => {
    if (!dump) return;
    const at = new Date(dump.at).getTime();
    const known = last.current?.id === dump.map.id ? last.current.of : new Map<string, { at: number; n: Figure }>();
    if (last.current?.id === dump.map.id && at <= last.current.at) return;
    const of = new Map([...known].filter(([, before]) => at - before.at <= remembered));
    const next: Record<string, number> = {};
    for (const e of dump.entries) {
      for (const [field, n] of Object.entries(numbers(e.value))) {
        const key = series(text(e.key), field);
        const before = known.get(key);
        if (before) next[key] = difference(n, before.n) / ((at - before.at) / 1000);
        of.set(key, { at, n });
      }
    }
    const first = !last.current || last.current.id !== dump.map.id;
    last.current = { at, of, id: dump.map.id };
    if (first) return;
    add(next);
    setRates(next);
  }, [dump]);
  return rates;
}

function Content(props: { dump: views.Dump; rates: Record<string, number>; history: (key: string) => number[] }) {
  const { dump, rates, history } = props;
  const histograms = useMemo(() => histogramsOf(dump), [dump]);
  const fields = useMemo(() => {
    const all = new Set<string>();
    for (const e of dump.entries.slice(0, 50)) for (const f of Object.keys(numbers(e.value))) all.add(f);
    return [...all].slice(0, 4);
  }, [dump]);
  if (dump.entries.length === 0) return <p class="empty">The map has no entries.</p>;
  const columns: Column<views.Entry>[] = [{ name: "Key", cell: (e) => <code>{text(e.key)}</code>, by: (e) => (isFigure(e.key) ? e.key : text(e.key)) }];
  for (const f of fields) {
    const rate = (e: views.Entry) => rates[series(text(e.key), f)] ?? 0;
    columns.push(
      { name: f || "Value", cell: (e) => <span title={text(e.value)}>{count(numbers(e.value)[f] ?? 0)}</span>, by: (e) => numbers(e.value)[f] ?? 0, number: true },
      { name: (f ? f + " " : "") + "per second", cell: (e) => <span class="rate">{rate(e) !== 0 && short(rate(e)) + "/s"}<Spark values={history(series(text(e.key), f))} label={`${short(rate(e))} per second`} /></span>, by: rate, number: true, minor: true },
    );
  }
  // Without BTF, there is no sum of the CPUs.
  const whole = (e: views.Entry) => (e.value === undefined ? e.perCPU : e.value);
  if (fields.length === 0) columns.push({ name: "Value", cell: (e) => <code title={text(whole(e))}>{text(whole(e))}</code>, by: (e) => text(whole(e)) });
  const field = fields[0];
  if (dump.map.perCPU && field !== undefined) {
    columns.push({ name: "By CPU", cell: (e) => <CPUs values={(e.perCPU ?? []).map((v) => Number(numbers(v)[field] ?? 0))} what={field} />, minor: true });
  }
  return (
    <>
      {histograms.map((h) => <Histogram of={h} key={h.name} />)}
      {fields.length > 0 && histograms.length === 0 && <Rates dump={dump} field={fields[0] ?? ""} rates={rates} history={history} />}
      <Section title="Entries" note="every two seconds">
        <Table label="Entries" columns={columns} rows={dump.entries} id={(e) => text(e.key)} empty="" tall />
      </Section>
    </>
  );
}

interface Hist {
  name: string;
  /** slots are the counts. If powers is set, slot n counts values from 2^n to 2^(n+1)-1. */
  slots: number[];
  powers: boolean;
}

const leastSlots = 8;
const slotFields = ["slot", "bucket"];

/** mostSlots is the number of slots that fit into a picture. A histogram of powers of two has at most 64. */
const mostSlots = 128;

/** inPowers matches names of maps that count in powers of two. */
const inPowers = /hist|slot|log2|laten|duration/i;

/** histogramsOf finds histograms: arrays of counts in values, as bcc's tools keep them; keys with a field slot or
 * bucket, as ebpf_exporter has them; and maps that are arrays of counts. */
function histogramsOf({ map, entries }: views.Dump): Hist[] {
  const whole = entries.map((e) => e.value);
  if (map.type.endsWith("array") && entries.length >= leastSlots && entries.length <= mostSlots && whole.every((n) => typeof n === "number")) {
    const slots: number[] = Array(entries.length).fill(0);
    for (const e of entries) slots[Number(e.key)] = e.value as number;
    return slots.some((n) => n > 0) ? [{ name: "", slots, powers: entries.length <= 64 && inPowers.test(map.name ?? "") }] : [];
  }
  const found: Hist[] = [];
  const bySlot = new Map<string, number[]>();
  for (const e of entries) {
    for (const [name, of] of arrays(e.value)) {
      if (of.length >= leastSlots && of.some((n) => n > 0)) found.push({ name: [entries.length > 1 ? text(e.key) : "", name].filter(Boolean).join(" "), slots: of, powers: true });
    }
    if (e.key !== null && typeof e.key === "object" && !Array.isArray(e.key) && typeof e.value === "number") {
      const key = e.key as Record<string, unknown>;
      const field = slotFields.find((f) => typeof key[f] === "number");
      if (!field) continue;
      const rest = text(Object.fromEntries(Object.entries(key).filter(([name]) => name !== field)));
      const slots = bySlot.get(rest) ?? [];
      slots[key[field] as number] = e.value;
      bySlot.set(rest, slots);
    }
  }
  for (const [name, slots] of bySlot) {
    if (slots.length <= mostSlots) found.push({ name, slots: Array.from(slots, (n) => n ?? 0), powers: slots.length <= 64 });
  }
  return found.slice(0, 12);
}

function arrays(value: unknown, path = ""): [string, number[]][] {
  if (Array.isArray(value)) return value.every((n) => typeof n === "number") ? [[path, value as number[]]] : [];
  if (value === null || typeof value !== "object") return [];
  return Object.entries(value).flatMap(([name, of]) => arrays(of, path ? path + "." + name : name));
}

function Histogram(props: { of: Hist }) {
  const { name, slots, powers } = props.of;
  // Empty slots at both ends are left out, except for one before the first count.
  const first = Math.max(0, slots.findIndex((n) => n > 0) - 1);
  let end = slots.length;
  while (end > first + 1 && slots[end - 1] === 0) end--;
  const shown = slots.slice(first, end);
  const most = Math.max(...shown, 1);
  const range = (i: number) => (powers ? `${short(i === 0 ? 0 : 2 ** i)} – ${short(2 ** (i + 1) - 1)}` : String(i));
  return (
    <Section title={name ? "Histogram of " + name : "Histogram"} note={powers ? "each bar is a power of two" : "by key"}>
      <table class="histogram">
        <thead class="hidden"><tr><th>Range</th><th>Count</th></tr></thead>
        <tbody>{shown.map((n, i) => <tr key={i}><th scope="row">{range(first + i)}</th><td><i style={{ width: `calc(${n / most} * (100% - 5rem))`, minWidth: n > 0 ? "1px" : "0" }} /><span>{count(n)}</span></td></tr>)}</tbody>
      </table>
    </Section>
  );
}

const lines = 6;

/** span is how far back rates are drawn, in seconds. */
const span = 180;

/** Rates draws the rates of the busiest keys. */
function Rates(props: { dump: views.Dump; field: string; rates: Record<string, number>; history: (key: string) => number[] }) {
  const { dump, field, rates, history } = props;
  const element = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot>(undefined);
  const keys = useMemo(() => {
    const of = (key: string) => Math.abs(rates[series(key, field)] ?? 0);
    return dump.entries.map((e) => text(e.key)).sort((a, b) => of(b) - of(a)).slice(0, lines).sort();
  }, [dump, rates]);
  const names = keys.join("\n");
  useEffect(() => {
    if (!element.current) return undefined;
    // Live, so that the next drawing has the colors of the theme.
    const css = getComputedStyle(element.current);
    const axis = { stroke: () => css.color, grid: { stroke: () => css.borderTopColor, width: 1 }, ticks: { show: false } };
    const plot = new uPlot({
      width: element.current.clientWidth, height: 180, cursor: { y: false }, legend: { live: true },
      scales: { x: { time: false, range: [-span, 0] }, y: { range: (_, least, most) => [Math.min(0, least), Math.max(most * 1.08, 1)] } },
      axes: [{ ...axis, space: 90, gap: 10, values: (_, ticks) => ticks.map((t) => (t === 0 ? "now" : `${-t} s ago`)) }, { ...axis, size: 56, values: (_, ticks) => ticks.map((t) => short(t) + "/s") }],
      series: [{ label: "when", value: (_, v) => (v === null ? "" : v === 0 ? "now" : `${-v} s ago`) }, ...keys.map((label, i) => ({ label, stroke: css.getPropertyValue(`--line${i}`), width: 1.5, points: { show: false }, value: (_: uPlot, v: number | null) => (v === null ? "" : short(v) + "/s") }))],
    }, [[], ...keys.map(() => [])], element.current);
    chart.current = plot;
    const observer = new ResizeObserver(() => element.current && plot.setSize({ width: element.current.clientWidth, height: 180 }));
    observer.observe(element.current);
    return () => { observer.disconnect(); plot.destroy(); };
  }, [names]);
  useEffect(() => {
    const kept = keys.map((key) => history(series(key, field)));
    const length = Math.max(...kept.map((k) => k.length), 0);
    const seconds = Array.from({ length }, (_, i) => (i - length + 1) * 2);
    chart.current?.setData([seconds, ...kept.map((k) => [...Array<null>(length - k.length).fill(null), ...k])]);
  }, [rates, names]);
  return <Section title={(field || "Value") + " per second"} note={dump.entries.length > lines ? `the ${lines} busiest of ${plural(dump.entries.length, "entry").replace("entrys", "entries")}` : undefined}><div class="chart" ref={element} /></Section>;
}
