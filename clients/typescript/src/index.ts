/** A typed client of Rowveil: `schema.ts` is generated from the contract, the rest is what it cannot say. */

import createClient, {
  type FetchResponse,
  type MaybeOptionalInit,
  type Middleware,
  type ParseAs,
} from "openapi-fetch";
import type { HttpMethod, MediaType, PathsWithMethod, RequiredKeysOf } from "openapi-typescript-helpers";

import type { components, operations, paths } from "./schema.js";

export type { components, operations, paths } from "./schema.js";

type Schemas = components["schemas"];
export type Buffer = Schemas["Buffer"];
export type Job = Schemas["Job"];
export type Problem = Schemas["Problem"];
export type ProgressUpdate = Schemas["ProgressUpdate"];

/** Options of a call, as they are written: an unknown name in a body, a query or a header does not compile. */
type Options<Path extends keyof paths, Method extends HttpMethod, As extends ParseAs> = Omit<
  NonNullable<MaybeOptionalInit<paths[Path], Method & keyof paths[Path]>>,
  "parseAs"
> & { parseAs?: As };

/**
 * A method of the client. That of openapi-fetch infers its options from those that are given, and so
 * compiles any name next to the right ones.
 */
type Call<Method extends HttpMethod> = <
  Path extends PathsWithMethod<paths, Method>,
  As extends ParseAs = "json",
>(
  url: Path,
  ...options: RequiredKeysOf<Options<Path, Method, As>> extends never
    ? [options?: Options<Path, Method, As>]
    : [options: Options<Path, Method, As>]
) => Promise<FetchResponse<paths[Path][Method] & {}, "json" extends As ? {} : { parseAs: As }, MediaType>>;

/** The service's operations by method and path. */
export interface Rowveil {
  GET: Call<"get">;
  POST: Call<"post">;
  PATCH: Call<"patch">;
  DELETE: Call<"delete">;
  use(...middleware: Middleware[]): void;
  eject(...middleware: Middleware[]): void;
}

/** Tables that a buffer is made of. */
export type TableType = "application/vnd.apache.arrow.stream" | "application/vnd.apache.parquet" | "text/csv";

/** Calls of the service at this address; each gives `data`, or an `error` that is a `Problem`. */
export function rowveil(baseUrl: string, key?: string): Rowveil {
  return createClient<paths>({ baseUrl, headers: key ? { Authorization: `Bearer ${key}` } : {} }) as Rowveil;
}

/** Upload a table as it is; `query` has its name, label and notes, and how a CSV is written. */
export function upload(
  client: Rowveil,
  table: Uint8Array | Blob | string,
  type: TableType,
  query: operations["createBuffer"]["parameters"]["query"] = {},
) {
  return client.POST("/v1/buffers", {
    params: { query },
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
