/** A typed client of Rowveil: `schema.ts` is generated from the contract, the rest is what it cannot say. */

import createClient, { type Client } from "openapi-fetch";

import type { components, paths } from "./schema.js";

export type { components, operations, paths } from "./schema.js";

type Schemas = components["schemas"];
export type Buffer = Schemas["Buffer"];
export type Job = Schemas["Job"];
export type Problem = Schemas["Problem"];
export type ProgressUpdate = Schemas["ProgressUpdate"];
export type Rowveil = Client<paths>;

/** Tables that a buffer is made of. */
export type TableType = "application/vnd.apache.arrow.stream" | "application/vnd.apache.parquet" | "text/csv";

/** Calls of the service at this address; each gives `data`, or an `error` that is a `Problem`. */
export function rowveil(baseUrl: string, key?: string): Rowveil {
  return createClient<paths>({ baseUrl, headers: key ? { Authorization: `Bearer ${key}` } : {} });
}

/** Upload a table as it is. */
export function upload(client: Rowveil, table: Uint8Array | Blob | string, type: TableType) {
  return client.POST("/v1/buffers", {
    body: table as unknown as string, // what OpenAPI calls a binary string
    bodySerializer: (body: unknown) => body as BodyInit,
    headers: { "Content-Type": type },
  });
}

/** How far the job is, now and at every change, up to its end. */
export async function* watch(client: Rowveil, jobId: string): AsyncGenerator<ProgressUpdate> {
  const { data, error } = await client.GET("/v1/jobs/{job_id}/events", {
    params: { path: { job_id: jobId } },
    parseAs: "stream",
  });
  if (error || !data) throw new Error(error?.detail ?? "no events came");
  let text = "";
  for await (const piece of data.pipeThrough(new TextDecoderStream())) {
    text += piece;
    const lines = text.split("\n");
    text = lines.pop() ?? "";
    for (const line of lines) {
      if (line.startsWith("data:")) yield JSON.parse(line.slice("data:".length)) as ProgressUpdate;
    }
  }
}

/** The rows of a job in the type that is asked for. */
export async function rows(client: Rowveil, jobId: string, type: TableType) {
  const { data, error, response } = await client.GET("/v1/jobs/{job_id}/rows", {
    params: { path: { job_id: jobId } },
    headers: { Accept: type },
    parseAs: "arrayBuffer",
  });
  return { data: data as unknown as ArrayBuffer | undefined, error, response }; // OpenAPI's type is that of JSON
}
