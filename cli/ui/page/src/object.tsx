// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

import { to, useStream } from "./api";
import type { Route } from "./api";
import { Bar, NodeMap } from "./cluster";
import { ago, count, plural } from "./format";
import { Commands, Facts, Loading, Problems, Section, State, Table, useNow } from "./parts";
import type { Column } from "./parts";
import type * as views from "./views";

export function ObjectView(props: { route: Route }) {
  const { query } = props.route;
  const kind = query.get("kind") ?? "", namespace = query.get("namespace") ?? "", name = query.get("name") ?? "";
  const stream = useStream<views.Object>("api/object?" + query.toString());
  const view = stream.view;
  const now = useNow();
  const object = `${kind.toLowerCase()}/${name}${namespace ? " -n " + namespace : ""}`;
  const commands = [`why ${object}`, `maps ${object}`, `top ${object}`];
  if (view?.revisions.length) commands.push(`rollout status ${object} --nodes`, `rollout history ${object}`);
  const state = view && (view.nodes[0]?.state ?? view.page.object.state);
  return (
    <main>
      <h1><span class="kind">{kind}</span> {namespace && namespace + "/"}{name} {state && <State state={state} />}</h1>
      <Problems stream={stream} />
      {!view ? <Loading stream={stream} /> : (
        <>
          <p class="answer">{view.page.summary}</p>
          {view.page.toDo && <p class="todo">{view.page.toDo}</p>}
          <Facts of={[
            ["Bytecode", <code>{view.page.object.bytecode || "none"}</code>], ["Nodes", view.page.object.nodeSelector || "all"],
            ["Status", `${view.page.object.status || "none yet"}${view.page.object.since ? `, for ${ago(view.page.object.since, now)}` : ""}${view.page.object.stale ? ", for an earlier generation" : ""}${view.page.object.deleting ? "; being deleted" : ""}`],
            ["Requested", <ul class="plain">{(view.page.wanted ?? []).map((w) => <li key={w.function}>{w.type} <b>{w.function}</b> <span class="faint">{w.fields?.join("  ")}</span></li>)}</ul>],
          ]} />
          {view.counts && view.counts.selected > 0 && <Bar counts={view.counts} />}
          {view.page.remarks?.map((r) => <p class="notice doubt" key={r}>{r}</p>)}
          {view.rollout && <Rollout rollout={view.rollout} selected={view.counts?.selected ?? 0} now={now} />}
          <ObjectNodes view={view} />
          <div class="columns even">
            <div>
              <Programs view={view} />
              <Bytecodes of={view.bytecode} />
            </div>
            <div>
              {view.revisions.length > 0 && <Revisions of={view.revisions} now={now} />}
              <Timeline of={view.timeline} now={now} />
              <Conditions of={view.conditions} now={now} />
            </div>
          </div>
          <Commands of={commands} />
        </>
      )}
    </main>
  );
}

/** loaded is the message of the condition of a program about which there is nothing to say. */
const loaded = "Successfully loaded bpfProgram";

const healths: Record<string, string> = { Failed: "failed", NotReported: "unknown", NoAgent: "notready", Outdated: "conflict", RollingOut: "unmatched", Left: "unmatched", Idle: "idle", Attached: "healthy" };

interface Group {
  names: string[];
  node: views.WhyNode;
}

/** alike groups nodes for which the same is true, as kubectl bpfman why does. */
function alike(nodes: views.WhyNode[]): Group[] {
  const groups = new Map<string, Group>();
  for (const node of nodes) {
    const programs = node.programs?.map((p) => [p.function, p.condition, p.message, p.links]);
    const key = JSON.stringify([node.state, programs, node.remarks, node.conflicts]);
    const group = groups.get(key);
    if (group) group.names.push(node.name);
    else groups.set(key, { names: [node.name], node });
  }
  return [...groups.values()];
}

function ObjectNodes(props: { view: views.Object }) {
  const { view } = props;
  const details = new Map((view.page.nodes ?? []).map((n) => [n.name, n]));
  const cells = view.nodes.map((n) => {
    const detail = details.get(n.name);
    return { name: n.name, health: detail?.conflicts && n.state === "Attached" ? "conflict" : (healths[n.state] ?? "unknown"), why: detail?.programs?.find((p) => p.message)?.message };
  }).sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  const totals: Record<string, number> = {};
  for (const c of cells) totals[c.health] = (totals[c.health] ?? 0) + 1;
  return (
    <>
      {cells.length > 1 && <NodeMap cells={cells} totals={totals} />}
      <Section title="State" note={cells.length > (view.page.nodes ?? []).length ? `details of ${count((view.page.nodes ?? []).length)} nodes, the most severe first` : undefined}>
        {cells.length === 0 && <p class="empty">No node has reported the object.</p>}
        <ul class="briefs">
          {alike(view.page.nodes ?? []).map(({ names, node }) => (
            <li key={names.join()}>
              <div class="line"><span>{names.slice(0, 5).map((n, i) => <>{i > 0 && ", "}<a href={to("node", { name: n })}>{n}</a></>)}{names.length > 5 && ` and ${count(names.length - 5)} more`}</span><State state={node.state} /></div>
              {node.remarks?.map((r) => <p class="message" key={r}>{r}</p>)}
              {node.programs?.map((p) => (
                <div class="program" key={p.report}>
                  <b>{p.function}</b> <span class="faint">{p.condition || "no condition yet"}</span>
                  {p.message && node.state === "Failed" ? <pre class="message">{p.message}</pre> : p.message !== loaded && <p class="message">{p.message?.replace(loaded + "; ", "")}</p>}
                  {p.links && <ul class="links">{p.links.map((l) => <li key={l.attachPoint} class={l.attached ? "" : "bad"}>{l.attachPoint} <span class={"state " + (l.attached ? "good" : "bad")}>{l.attached ? "attached" : "not attached"}</span>{l.error && <p class="message">{l.error}</p>}</li>)}</ul>}
                </div>
              ))}
              {node.conflicts?.map((c) => <p class="message doubt" key={c}>{c}</p>)}
              {node.remedies?.map((r) => <p class="todo" key={r}>{r}</p>)}
            </li>
          ))}
          {view.page.notSelected?.map((c) => <li key={c.because}><div class="line"><span>{plural(c.nodes, "node")} not selected, such as {c.examples.join(", ")}</span></div><p class="message">{c.because}</p></li>)}
        </ul>
      </Section>
    </>
  );
}

function Rollout(props: { rollout: views.RolloutStatus; selected: number; now: number }) {
  const { rollout: r, selected } = props;
  return (
    <Section title="Rollout" note={r.policy && `by RolloutPolicy ${r.policy}`}>
      <div class="line"><State state={r.state} /><span>{r.revision ? `revision ${r.revision}` : ""}{r.step ? `, step ${r.step}` : ""}{r.stepStarted ? `, for ${ago(r.stepStarted, props.now)}` : ""}</span></div>
      {selected > 0 && r.nodes !== undefined && (
        <div class="bar"><span class="track" aria-hidden="true"><i class="good" style={{ flexGrow: r.nodes }} /><i class="waiting" style={{ flexGrow: Math.max(selected - r.nodes, 0) }} /></span><small>{count(r.nodes)} of {plural(selected, "node")} may run it</small></div>
      )}
      {r.message && <p class="message">{r.message}</p>}
    </Section>
  );
}

function Programs(props: { view: views.Object }) {
  const columns: Column<views.ObjectmapsMap>[] = [
    { name: "Map", cell: (m) => <a href={to("map", { node: m.node, name: m.name, ...(m.path ? { pin: m.path } : { id: m.kernel!.id }) })}>{m.name}</a>, by: (m) => m.name },
    { name: "Node", cell: (m) => <a href={to("node", { name: m.node })}>{m.node}</a>, by: (m) => m.node },
    { name: "Type", cell: (m) => m.kernel?.type ?? "", by: (m) => m.kernel?.type ?? "", minor: true },
    { name: "Functions", cell: (m) => m.functions.join(", "), minor: true },
  ];
  if (props.view.maps.some((m) => m.ownerID)) columns.push({ name: "Shared from", cell: (m) => (m.ownerID ? `program ${m.ownerID}` : ""), minor: true });
  return (
    <Section title="Maps" note={props.view.moreMaps ? `and ${count(props.view.moreMaps)} more` : plural(props.view.maps.length, "map")}>
      <Table label="Maps" columns={columns} rows={props.view.maps} id={(m) => m.node + "/" + m.name} empty="It has no map on any node." />
    </Section>
  );
}

function Bytecodes(props: { of: views.Bytecode[] }) {
  if (props.of.length === 0) return null;
  return (
    <Section title="Bytecode on the nodes">
      <ul class="briefs">
        {props.of.map((b) => (
          <li key={b.digest + (b.image ?? "")}>
            <div class="line"><code class="wrap">{b.image}</code><span>{plural(b.nodes, "node")}</span></div>
            <Facts of={[["Digest", b.digest && <code class="wrap">{b.digest}</code>], ["Signed by", b.signers?.join(", ") || "no signer that a policy names"]]} />
            {b.policies?.map((p) => <p class="message" key={p.name}><State state={p.verdict} /> BytecodePolicy {p.name}{p.message ? ": " + p.message : ""}</p>)}
          </li>
        ))}
      </ul>
    </Section>
  );
}

function Revisions(props: { of: views.Revision[]; now: number }) {
  const columns: Column<views.Revision>[] = [
    { name: "Revision", cell: (r) => <>{r.number} {r.newest && <span class="state good">current</span>}</>, by: (r) => r.number },
    { name: "Age", cell: (r) => ago(r.created, props.now), by: (r) => -new Date(r.created).getTime(), number: true },
    { name: "Change", cell: (r) => r.change },
  ];
  return <Section title="Revisions"><Table label="Revisions" columns={columns} rows={props.of} id={(r) => String(r.number)} empty="" /></Section>;
}

function Timeline(props: { of: views.Occurrence[]; now: number }) {
  return (
    <Section title="Timeline" note={plural(props.of.length, "event")}>
      {props.of.length === 0 && <p class="empty">Nothing is known. The cluster stores revisions, what each node did last, and Events of the last hour.</p>}
      <ul class="changes">
        {props.of.map((e) => (
          <li key={e.time + e.what + (e.nodes ?? []).join()} class={e.failed ? "doubt" : ""}>
            <time dateTime={e.time}>{ago(e.time, props.now)}</time>
            <div>
              <b>{e.nodes ? <Nodes of={e.nodes} more={e.more ?? 0} /> : e.revision ? `Revision ${e.revision}` : "Object"}</b>
              {e.nodes && e.revision ? <span class="faint"> revision {e.revision}</span> : null}
              <p class="clamp" title={e.what}>{e.what}</p>
            </div>
          </li>
        ))}
      </ul>
    </Section>
  );
}

/** Nodes names the first nodes, and counts the others. */
function Nodes(props: { of: string[]; more: number }) {
  const shown = 3, more = Math.max(props.of.length - shown, 0) + props.more;
  return <>{props.of.slice(0, shown).map((n, i) => <>{i > 0 && ", "}<a href={to("node", { name: n })}>{n}</a></>)}{more > 0 && ` and ${count(more)} more`}</>;
}

function Conditions(props: { of: views.Condition[]; now: number }) {
  const columns: Column<views.Condition>[] = [
    { name: "Condition", cell: (c) => c.type }, { name: "Status", cell: (c) => c.status }, { name: "Reason", cell: (c) => c.reason, minor: true },
    { name: "Age", cell: (c) => ago(c.lastTransitionTime, props.now), number: true },
  ];
  return <Section title="Conditions"><Table label="Conditions" columns={columns} rows={props.of ?? []} id={(c) => c.type} empty="The operator hasn't written a status yet." /></Section>;
}
