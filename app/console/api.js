// Client of the public HTTP API; every request of the console goes through this module.

import { parse, stringify } from "./exact_json.js";
import { askForKey } from "./key_dialog.js";
import { sentenceOf } from "./problem_words.js";
import * as session from "./session.js";

export const JSON_TYPE = "application/json";
const RECONNECT_MILLISECONDS = 1000;
const SENDABLE = /^[!-~]*$/; // characters of a header; a browser rejects others without an explanation
const WHO_CALLS =
  "The service needs an access key: paste the one that you were given, or that `make serve` printed.";

/** A problem document (RFC 9457) as an error. */
export class Problem extends Error {
  constructor(status, document) {
    const [first, ...others] = (document.errors ?? []).map((error) => sentenceOf(error));
    super(first ?? document.detail ?? "the service gave no reason");
    this.status = status;
    this.title = document.title ?? `Status ${status}`;
    this.errors = document.errors ?? [];
    this.others = others;
  }
}

/** Sends a request. On 401 asks for an access key and retries. Throws Problem. */
export async function send(method, path, { body, headers = {}, signal, cache = "no-store" } = {}) {
  for (;;) {
    const key = session.key();
    if (!SENDABLE.test(key)) {
      const why = "the key has characters that no key has: paste only the key";
      if (!(await askForKey(why))) throw new Problem(401, { title: "No key", detail: why });
      continue;
    }
    const sent = key ? { ...headers, authorization: `Bearer ${key}` } : headers;
    let response;
    try {
      response = await fetch(path, { method, body, headers: sent, signal, cache });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0, { title: "No answer", detail: "the service cannot be reached; is it running?" });
    }
    if (response.ok) return response;
    const document = await response.json().catch(() => ({}));
    if (response.status !== 401) throw new Problem(response.status, document);
    if (!(await askForKey(key ? document.detail : WHO_CALLS))) throw new Problem(401, document);
  }
}

/** Returns the body of a response as `kind`, "text" or "blob". Throws Problem if the connection ends before the body. */
export async function bodyOf(response, kind) {
  try {
    return await response[kind]();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const detail = "the connection to the service ended before its whole answer had arrived; try again";
    throw new Problem(0, { title: "Interrupted", detail });
  }
}

/** Returns the JSON of a response. */
export const json = async (response) => parse(await bodyOf(response, "text"));

/** Sends GET; returns the JSON of the response. */
export async function get(path, signal, cache) {
  return json(await send("GET", path, { headers: { accept: JSON_TYPE }, signal, cache }));
}

/** Sends POST with a JSON body; returns the JSON of the response. */
export async function post(path, body, headers = {}) {
  const sent = { "content-type": JSON_TYPE, accept: JSON_TYPE, ...headers };
  return json(await send("POST", path, { body: stringify(body), headers: sent }));
}

/** Returns an idempotency key. `crypto.randomUUID` is missing where the service has no TLS. */
const newIdempotencyKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/**
 * Returns a function that sends a request which creates something: `ask(headers)`. `request` identifies it. A
 * repetition of a request whose response was lost has the same idempotency key, so that the service creates nothing
 * a second time.
 */
export function once() {
  const keys = new Map(); // of the requests without a response
  return async (request, ask) => {
    if (!keys.has(request)) keys.set(request, newIdempotencyKey());
    try {
      const made = await ask({ "idempotency-key": keys.get(request) });
      keys.delete(request);
      return made;
    } catch (error) {
      if (error.status >= 400 && error.status < 500) keys.delete(request); // rejected: nothing was created
      throw error;
    }
  };
}

/** Returns a `post` for requests that create something; it repeats a request as `once` does. */
export function postOnce() {
  const create = once();
  return (path, body, headers = {}) =>
    create(stringify([path, body]), (key) => post(path, body, { ...headers, ...key }));
}

/** Sends PATCH with a JSON body; returns the JSON of the response. */
export async function patch(path, body) {
  const headers = { "content-type": JSON_TYPE, accept: JSON_TYPE };
  return json(await send("PATCH", path, { body: stringify(body), headers }));
}

const kept = new Map();

/** Sends GET once and caches the result. */
export function getOnce(path, cache) {
  if (!kept.has(path)) {
    kept.set(
      path,
      get(path, undefined, cache).catch((error) => {
        kept.delete(path);
        throw error;
      }),
    );
  }
  return kept.get(path);
}

export const listServices = async () => (await getOnce("v1/services")).services;

/** The OpenAPI document. It is large: the browser keeps it, and asks at a reload whether it is still the same. */
export const contract = () => getOnce("openapi.json", "no-cache");

/** Yields server-sent events {event, data}. Uses fetch, because EventSource cannot send a key. */
async function* events(path, signal) {
  const response = await send("GET", path, { headers: { accept: "text/event-stream" }, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value.replaceAll("\r", "")).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n");
      const of = (name) =>
        lines.filter((line) => line.startsWith(`${name}: `)).map((line) => line.slice(name.length + 2));
      if (of("data").length) yield { event: of("event")[0], data: JSON.parse(of("data").join("\n")) };
    }
  }
}

/** Waits until the user sees this tab, or `signal` is aborted. */
const untilVisible = (signal) =>
  new Promise((resolve) => {
    const done = new AbortController();
    const check = () => {
      if (document.hidden && !signal.aborted) return;
      done.abort();
      resolve();
    };
    document.addEventListener("visibilitychange", check, { signal: done.signal });
    signal.addEventListener("abort", check, { signal: done.signal });
    check();
  });

/** Whether a request is refused for good; too many requests are not. */
const isRefused = (error) =>
  error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429;

/**
 * Calls `onChange` for every change of the job until it has ended; reconnects a broken stream. A hidden tab has no
 * stream: a browser opens six connections to a service without TLS, and with six streams no other tab would get a response.
 * `onUnreachable(true)` is called when the stream breaks, `onUnreachable(false)` with the next event.
 */
export async function watch(id, onChange, signal, onUnreachable) {
  for (;;) {
    await untilVisible(signal);
    if (signal.aborted) return;
    const hidden = new AbortController();
    const hide = () => document.hidden && hidden.abort();
    document.addEventListener("visibilitychange", hide);
    try {
      const either = AbortSignal.any([signal, hidden.signal]);
      for await (const { event, data } of events(`v1/jobs/${encodeURIComponent(id)}/events`, either)) {
        onUnreachable(false);
        onChange(data);
        if (event === "end") return;
      }
    } catch (error) {
      if (signal.aborted || isRefused(error)) throw error;
      if (!hidden.signal.aborted) onUnreachable(true);
    } finally {
      document.removeEventListener("visibilitychange", hide);
    }
    if (!hidden.signal.aborted) await new Promise((resolve) => setTimeout(resolve, RECONNECT_MILLISECONDS));
  }
}

/** Saves a response as a file. A plain link could send neither the media type nor the key. */
export async function download(path, accept, name) {
  const content = await bodyOf(await send("GET", path, { headers: { accept } }), "blob");
  const address = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
