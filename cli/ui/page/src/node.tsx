// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

import { to, useStream } from "./api";
import type { Route } from "./api";
import { bytes, count, nanoseconds, percent, plural, short } from "./format";
import { Commands, Facts, Loading, OwnerLink, Problems, Section, Spark, State, Table, useHistory } from "./parts";
import type { Column } from "./parts";
import type * as views from "./views";

export function NodeView(props: { route: Route }) {
  const name = props.route.query.get("name") ?? "", pod = props.route.query.get("pod") ?? "";
  const stream = useStream<views.Node>("api/node?" + new URLSearchParams(pod ? { name, pod } : { name }).toString());
  const history = useHistory();
  const usage = useStream<views.Usage>("api/usage?" + new URLSearchParams({ node: name }).toString(), (u) =>
    history.add(Object.fromEntries(Object.entries(u.programs).map(([id, used]) => [id, used.runs]))));
  const view = stream.view;
  // Without a report of the inspector, it isn't known what the node has.
  const known = !!view?.kernel;
  const live: Live = { of: (id) => usage.view?.programs[id], history: (id) => history.of(String(id)), measured: !!usage.view };
  return (
    <main>
      <h1>{pod ? <><span class="kind">Pod</span> {pod}</> : <><span class="kind">Node</span> {name} {view && <State state={view.cell.health} />}</>}</h1>
      <Problems stream={stream} />
      {!view ? <Loading stream={stream} /> : (
        <>
          {pod ? (
            <>
              <Facts of={[["Node", <a href={to("node", { name })}>{name}</a>]]} />
              <p>What sees the packets and calls of the pod: first its own programs, and then those of its node. Programs at the node's ends of other pods' interfaces are listed too.</p>
            </>
          ) : <Facts of={[
            ["Kernel", view.kernel], ["Programs", known && `${count(view.cell.bpfman)} of bpfman, ${count(view.cell.others)} of others`],
            ["Maps", known && `${count(view.maps.length)}, ${bytes(view.maps.reduce((sum, m) => sum + (m.memorybytes ?? 0), 0))}`],
            ["CPU", usage.view ? percent(Object.values(usage.view.programs).reduce((sum, u) => sum + u.cpu, 0)) + " of one" : usage.problem ? "not measured" : "…"],
          ]} />}
          {usage.problem && <p class="notice">Run times aren't live: {usage.problem}</p>}
          {view.cell.why && view.cell.health !== "conflict" && <p class={"notice " + (view.cell.health === "failed" ? "bad" : "doubt")}>{view.cell.why}</p>}
          {!pod && view.conflicts.length > 0 && (
            <Section title="Conflicts" note={plural(view.conflicts.length, "conflict")}>
              <ul class="briefs">{view.conflicts.map((c) => <li key={c.type + c.message}><div class="line"><b>{c.type}</b>{c.owner && <OwnerLink owner={c.owner} />}</div><p class="message doubt">{c.message}</p></li>)}</ul>
            </Section>
          )}
          {view.omitted && <p class="notice">The node has more than fits into its BpfNode: {Object.entries(view.omitted).map(([what, n]) => `${count(n as number)} ${what}`).join(", ")} aren't shown.</p>}
          {known && (
            <>
              <Places places={view.places} live={live} node={name} pod={pod} />
              {!pod && <Unattached programs={view.unattached} live={live} />}
              {(!pod || view.maps.length > 0) && <Maps maps={view.maps} pod={pod} />}
            </>
          )}
          <Commands of={pod ? [`pods ${pod.split("/")[1]} -n ${pod.split("/")[0]}`, `top --node ${name}`] : [`chain --node ${name}`, `programs --node ${name}`, `top --node ${name}`, `maps --node ${name}`]} />
        </>
      )}
    </main>
  );
}

interface Live {
  of: (id: number) => views.Used | undefined;
  history: (id: number) => number[];
  measured: boolean;
}

function Places(props: { places: views.Place[]; live: Live; node: string; pod: string }) {
  if (props.places.length === 0) return <Section title="Hooks"><p class="empty">No program is attached.</p></Section>;
  // In the view of a pod, its own places come first, in a section of their own.
  const groupOf = (p: views.Place) => (props.pod && p.pod === props.pod ? "In the pod" : p.group);
  const groups = [...new Set(props.places.map(groupOf))];
  return (
    <>
      {groups.map((group) => {
        const places = props.places.filter((p) => groupOf(p) === group);
        return (
          <Section title={group} note={group === "Interfaces" || group === "Pods" ? "in the order in which a packet passes" : plural(places.length, "hook")} key={group}>
            {places.slice(0, 400).map((p) => <PlaceOf place={p} live={props.live} node={props.node} linked={!props.pod} key={p.name} />)}
            {places.length > 400 && <p class="empty">and {count(places.length - 400)} more</p>}
          </Section>
        );
      })}
    </>
  );
}

function PlaceOf(props: { place: views.Place; live: Live; node: string; linked: boolean }) {
  const { place } = props;
  return (
    <div class="place">
      {place.name && <h3>{place.pod && props.linked ? <a href={to("node", { name: props.node, pod: place.pod })}>{place.name}</a> : place.name}</h3>}
      {place.hooks.map((h, i) => (
        <div class="hook" key={h.type + i}>
          <div class="hooktype">{h.type}</div>
          <ol class={"chain" + (h.ordered ? " ordered" : "")} aria-label={`Programs at ${h.type} of ${place.name}`}>
            {(h.ordered ? h.programs.map((p) => [p]) : alike(h.programs)).map((of) => <Box key={`${of[0]?.id}-${of[0]?.position}-${of[0]?.slot}`} programs={of} live={props.live} ordered={!!h.ordered} />)}
          </ol>
        </div>
      ))}
    </div>
  );
}

/** alike groups programs that only differ in their IDs. */
function alike(programs: views.AtHook[]): views.AtHook[][] {
  const groups = new Map<string, views.AtHook[]>();
  for (const p of programs) {
    const key = JSON.stringify([p.name, p.owner, p.whose, p.conflict]);
    groups.set(key, [...(groups.get(key) ?? []), p]);
  }
  return [...groups.values()];
}

/** Box shows a program, or several that are alike. */
function Box(props: { programs: views.AtHook[]; live: Live; ordered: boolean }) {
  const [p] = props.programs;
  if (!p) return null;
  const many = props.programs.length > 1;
  const dispatcher = p.bpfman && !p.owner;
  const classes = ["box", p.bpfman ? "ours" : "theirs", p.conflict ? "conflict" : "", dispatcher ? "dispatcher" : ""].join(" ");
  return (
    <li>
      <article class={classes} aria-label={`${p.name ?? "program"} ${p.id}`}>
        <div class="line"><b>{p.name || "(no name)"}</b>{many ? <span class="state" title={props.programs.map((of) => of.id).join(", ")}>{plural(props.programs.length, "program")}</span> : <span class="id">{p.id}</span>}</div>
        <div class="who">{p.owner ? <OwnerLink owner={p.owner} /> : dispatcher ? "bpfman runs the next ones" : p.whose || "holder not known"}</div>
        <Figures ids={props.programs.map((of) => of.id)} live={props.live} />
        {p.conflict && <p class="message doubt" title={p.conflict}>Conflict: {p.conflict.split(":")[0]}</p>}
      </article>
      {props.ordered && !dispatcher && <span class="arrow" title={p.skips?.length ? `any other verdict skips ${plural(p.skips.length, "program")}` : undefined}>{p.proceedon?.length ? p.proceedon.join(", ") : "ends"}</span>}
    </li>
  );
}

/** Figures shows what programs take together. */
function Figures(props: { ids: number[]; live: Live }) {
  const all = props.ids.flatMap((id) => props.live.of(id) ?? []);
  if (!props.live.measured) return null;
  const sum = (figure: (used: views.Used) => number) => all.reduce((total, used) => total + figure(used), 0);
  const runs = sum((used) => used.runs);
  if (runs === 0) return <div class="figures faint">didn't run</div>;
  return (
    <div class="figures">
      <span>{short(runs)}/s</span><span>{nanoseconds(sum((used) => used.runs * used.perRun) / runs)}</span><span>{percent(sum((used) => used.cpu))}</span>
      <Spark values={total(props.ids.map(props.live.history))} label={`${short(runs)} runs per second`} />
    </div>
  );
}

/** total adds figures of the same times. Those that began later are shorter. */
function total(histories: number[][]): number[] {
  const length = Math.max(...histories.map((h) => h.length));
  return Array.from({ length }, (_, i) => histories.reduce((sum, h) => sum + (h[i - length + h.length] ?? 0), 0));
}

function Unattached(props: { programs: views.Program[]; live: Live }) {
  if (props.programs.length === 0) return null;
  const columns: Column<views.Program>[] = [
    { name: "Program", cell: (p) => <><span class={"dot " + (p.bpfman ? "ours" : "")} aria-hidden="true" />{p.name || "(no name)"}</>, by: (p) => p.name ?? "" },
    { name: "ID", cell: (p) => p.id, by: (p) => p.id, number: true },
    { name: "Type", cell: (p) => p.type, by: (p) => p.type },
    { name: "Attached", cell: (p) => (p.unknown ? "unknown: " + p.unknown : "not attached"), by: (p) => p.unknown ?? "" },
    { name: "Owner", cell: (p) => (p.owner ? <OwnerLink owner={p.owner} /> : p.bpfman ? "bpfman" : (p.holders?.[0]?.process ?? p.holders?.[0]?.path ?? "")) },
  ];
  return (
    <Section title="Without a known attach point" note={plural(props.programs.length, "program")}>
      <Table label="Programs without a known attach point" columns={columns} rows={props.programs} id={(p) => String(p.id)} empty="" />
    </Section>
  );
}

function Maps(props: { maps: views.Map[]; pod: string }) {
  const columns: Column<views.Map>[] = [
    { name: "Map", cell: (m) => <a href={to("map", { node: m.node, id: m.id, name: m.name })}>{m.name || "map " + m.id}</a>, by: (m) => m.name ?? "" },
    { name: "Type", cell: (m) => m.type, by: (m) => m.type, minor: true },
    { name: "Entries", cell: (m) => count(m.maxentries ?? 0), by: (m) => m.maxentries ?? 0, number: true, minor: true },
    { name: "Memory", cell: (m) => (m.memorybytes ? bytes(m.memorybytes) : ""), by: (m) => m.memorybytes ?? 0, number: true },
    { name: "Programs", cell: (m) => (m.unused ? <span class="state doubt">not used</span> : m.stale ? <span class="state doubt">none: the volume is stale</span> : (m.programs ?? []).join(", ")), by: (m) => (m.programs ?? []).length },
    { name: "Pods", cell: (m) => <>{(m.pods ?? []).map((pod, i) => <>{i > 0 && ", "}{pod.includes("/") ? <a href={to("node", { name: m.node, pod })}>{pod}</a> : pod}</>)}</>, by: (m) => (m.pods ?? []).length, minor: true },
  ];
  const unused = props.maps.filter((m) => m.unused);
  return (
    <Section title={props.pod ? "Maps in its volumes" : "Maps"} note={unused.length > 0 ? `${plural(unused.length, "map")} with ${bytes(unused.reduce((sum, m) => sum + (m.memorybytes ?? 0), 0))} not used by any program or pod` : plural(props.maps.length, "map")}>
      <Table label="Maps" columns={columns} rows={props.maps} id={(m) => String(m.id)} empty="The node has no maps." />
    </Section>
  );
}
