// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// The page's connection to the server: the session, and views that the server streams.
import { useEffect, useState } from "preact/hooks";
import type { Session } from "./views";

const stored = "session";

/** session is what the server gave for the token in the address, or what it gave earlier in this tab. */
export let session: Session | undefined;

/** tokenIn is the token in an address, if it is one that the server printed. */
export function tokenIn(hash: string): string | undefined {
  return /^#token=(\w+)$/.exec(hash)?.[1];
}

/** open exchanges the token in the address. It returns an explanation if there is no session. */
export async function open(): Promise<string | undefined> {
  const token = tokenIn(location.hash);
  if (token) {
    history.replaceState(null, "", location.pathname + "#/cluster");
    const response = await fetch("session", { method: "POST", body: JSON.stringify({ token }) });
    if (!response.ok) return await response.text();
    session = (await response.json()) as Session;
    sessionStorage.setItem(stored, JSON.stringify(session));
    return undefined;
  }
  const kept = sessionStorage.getItem(stored);
  if (!kept) return "This tab has no session.";
  session = JSON.parse(kept) as Session;
  return undefined;
}

/** Stream is the state of a view. */
export interface Stream<T> {
  view?: T;
  /** problem says why no newer view arrives. */
  problem?: string;
  /** at is when the last view arrived. */
  at?: number;
  /** ended means that the session is over, so that retrying doesn't help. */
  ended?: boolean;
}

const firstRetry = 1000;
const lastRetry = 15_000;

/** exact parses JSON without rounding: integers that a number can't hold exactly become bigints. Browsers that don't
 * pass the source of a value round it. */
export function exact(json: string): unknown {
  const whole = (_: string, value: unknown, context?: { source: string }) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context?.source ?? "") : value;
  return JSON.parse(json, whole);
}

/** useStream follows a view until another one is asked for. An empty path asks for nothing. parse is JSON.parse, or
 * exact for content of maps. */
export function useStream<T>(path: string, take?: (view: T) => void, parse: (json: string) => unknown = JSON.parse): Stream<T> {
  const [state, setState] = useState<Stream<T> & { path: string }>({ path });
  useEffect(() => {
    if (!path) return undefined;
    const end = new AbortController();
    const update = (change: Stream<T>) =>
      setState((old) => (old.path === path ? { ...old, ...change, path } : { ...change, path }));
    void follow(path, end.signal, (data) => {
      const view = parse(data) as T;
      take?.(view);
      update({ view, problem: undefined, at: Date.now() });
    }, (problem, ended) => update({ problem, ended }));
    return () => end.abort();
  }, [path]);
  return state.path === path ? state : {};
}

/** whileVisible returns a controller that aborts when the signal does, or when the page is hidden. It listens until it
 * aborts, so the caller aborts it at the end. */
function whileVisible(end: AbortSignal): AbortController {
  const hidden = new AbortController();
  const check = () => document.hidden && hidden.abort();
  document.addEventListener("visibilitychange", check, { signal: hidden.signal });
  end.addEventListener("abort", () => hidden.abort(), { signal: hidden.signal });
  return hidden;
}

/** visible waits until the page is visible. */
async function visible(end: AbortSignal): Promise<void> {
  while (document.hidden && !end.aborted) {
    const change = new AbortController(); // ends both when there is one
    await new Promise((resolve) => {
      document.addEventListener("visibilitychange", resolve, { signal: change.signal });
      end.addEventListener("abort", resolve, { signal: change.signal });
    });
    change.abort();
  }
}

/** follow reads a stream while the page is visible. A browser opens at most six connections to a server, so hidden tabs
 * must leave them to others. */
async function follow(path: string, end: AbortSignal, take: (data: string) => void, fail: (problem: string, ended: boolean) => void) {
  for (let wait = firstRetry; !end.aborted; wait = Math.min(wait * 2, lastRetry)) {
    await visible(end);
    if (end.aborted) return;
    const reading = whileVisible(end), { signal } = reading;
    try {
      const response = await fetch(path, { signal, headers: { Authorization: "Bearer " + (session?.key ?? "") } });
      if (!response.ok || !response.body) {
        fail(await response.text(), response.status === 401);
        if (response.status === 401) return;
      } else {
        let problem: string | undefined;
        await events(response.body, (event, data) => {
          if (event === "problem") problem = JSON.parse(data) as string;
          else {
            wait = firstRetry;
            take(data);
          }
        });
        fail(problem ?? "The server has ended the view.", false);
      }
    } catch {
      if (!signal.aborted) fail("kubectl bpfman ui doesn't answer: it has ended, or this machine was suspended.", false);
    }
    const hidden = signal.aborted;
    reading.abort();
    if (hidden) {
      wait = firstRetry / 2;
      continue; // the page was hidden: read again as soon as it is visible
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

/** events reads server-sent events. EventSource can't send the session's key. */
async function events(body: ReadableStream<Uint8Array>, take: (event: string, data: string) => void) {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  const parts: string[] = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    parts.push(value);
    if (!value.includes("\n\n") && !(value.startsWith("\n") && parts.length > 1)) continue;
    const blocks = parts.join("").split("\n\n");
    parts.length = 0;
    parts.push(blocks.pop() ?? "");
    for (const block of blocks) {
      const lines = block.split("\n");
      const field = (name: string) => lines.find((line) => line.startsWith(name + ": "))?.slice(name.length + 2) ?? "";
      take(field("event"), field("data"));
    }
  }
}

/** Route is the view in the address, with its parameters. */
export interface Route {
  name: string;
  query: URLSearchParams;
}

function parse(): Route {
  const [name, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { name: name || "cluster", query: new URLSearchParams(query ?? "") };
}

/** useRoute follows the address. */
export function useRoute(): Route {
  const [route, setRoute] = useState(parse);
  useEffect(() => {
    const changed = () => setRoute(parse());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** to returns the address of a view. Parameters without a value are left out. */
export function to(name: string, parameters: Record<string, string | number | undefined> = {}): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== "") query.set(key, String(value));
  }
  const text = query.toString();
  return `#/${name}${text ? "?" + text : ""}`;
}
