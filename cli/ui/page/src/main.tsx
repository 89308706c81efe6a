// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./page.css";
import { open, session, to, tokenIn, useRoute } from "./api";
import { ClusterView } from "./cluster";
import { MapView } from "./map";
import { NodeView } from "./node";
import { ObjectView } from "./object";

const views: Record<string, typeof ClusterView> = { cluster: ClusterView, node: NodeView, object: ObjectView, map: MapView };

function Page() {
  const route = useRoute();
  const View = views[route.name] ?? ClusterView;
  const what = route.query.get("pod") || route.query.get("name") || (route.name === "map" ? `map ${route.query.get("id") ?? ""}` : "");
  useEffect(() => {
    document.title = [what, "bpfman"].filter(Boolean).join(" · ");
    scrollTo(0, 0);
  }, [route.name, what]);
  return (
    <>
      <a class="skip" href="#content" onClick={(e) => { e.preventDefault(); document.querySelector<HTMLElement>("main h1")?.focus(); }}>Skip to content</a>
      <header class="top">
        <a class="brand" href={to("cluster")}><img src="icon.svg" alt="" width="24" height="24" />bpfman</a>
        <nav aria-label="Path">
          <a href={to("cluster")}>{session?.context || "cluster"}</a>
          {route.query.get("pod") && <> <span aria-hidden="true">/</span> <a href={to("node", { name: route.query.get("name") ?? "" })}>{route.query.get("name")}</a></>}
          {route.name === "map" && <> <span aria-hidden="true">/</span> <a href={to("node", { name: route.query.get("node") ?? "" })}>{route.query.get("node")}</a></>}
          {route.name !== "cluster" && <> <span aria-hidden="true">/</span> <span aria-current="page">{what}</span></>}
        </nav>
        <Theme />
      </header>
      <View route={route} key={route.name === "cluster" ? "cluster" : route.name + route.query.toString()} />
      <footer>kubectl bpfman ui {session?.version} · this page only reads · <a href="licenses.txt">licenses</a></footer>
    </>
  );
}

const themes = ["", "light", "dark"];

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") ?? "");
  useEffect(() => {
    document.documentElement.dataset["theme"] = theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  const next = themes[(themes.indexOf(theme) + 1) % themes.length] ?? "";
  return <button type="button" class="theme" onClick={() => setTheme(next)} aria-label={`Theme: ${theme || "automatic"}. Switch to ${next || "automatic"}.`}>{theme === "dark" ? "Dark" : theme === "light" ? "Light" : "Auto"}</button>;
}

function Closed(props: { why: string }) {
  return <main class="closed"><h1>bpfman</h1><p>{props.why}</p><p>Open the address that <code>kubectl bpfman ui</code> prints. It works once. For another one, press Enter where the command runs.</p></main>;
}

// A new address that is pasted into an open tab only changes the part that isn't loaded again.
addEventListener("hashchange", () => tokenIn(location.hash) && location.reload());
const problem = await open().catch((error: unknown) => String(error));
render(problem ? <Closed why={problem} /> : <Page />, document.getElementById("page") as HTMLElement);
