/** What a sandbox's diagnostics tell. @internal */

import * as Fs from "node:fs"
import type { ApiError } from "./apiError.js"
import { invalidParameter } from "./apiError.js"
import { iso } from "./http.js"
import type { Sandbox } from "./sandboxes.js"

export type Kind = "events" | "logs"

const SCOPES = ["container", "lifecycle", "runtime", "process", "all"]
const MAX_BYTES = 1024 * 1024

/** The end of a file, from the first whole line on. */
const tail = (path: string): { readonly text: string; readonly truncated: boolean } => {
  try {
    const fd = Fs.openSync(path, "r")
    try {
      const { size } = Fs.fstatSync(fd)
      const bytes = Buffer.alloc(Math.min(size, MAX_BYTES))
      Fs.readSync(fd, bytes, 0, bytes.length, size - bytes.length)
      const text = bytes.toString("utf8")
      const truncated = size > bytes.length
      return { text: truncated ? text.slice(text.indexOf("\n") + 1) : text, truncated }
    } finally {
      Fs.closeSync(fd)
    }
  } catch {
    return { text: "", truncated: false }
  }
}

const refuse = (scope: string | null): ApiError =>
  invalidParameter(
    `${scope === null || scope === "" ? "scope is missing" : `There is no scope ${scope}`}; the scopes are ${SCOPES.join(", ")}`
  )

/** Throws an `ApiError` where there is no such scope. */
export const diagnose = (sandbox: Sandbox, kind: Kind, scope: string | null) => {
  if (scope === null || !SCOPES.includes(scope)) throw refuse(scope)
  const { entrypoint, journal } = sandbox
  // What a container prints is its entrypoint's output; what happens to it is an event of the runtime.
  const wanted = (entry: { readonly scope: string }) =>
    scope === "all" ||
    entry.scope === scope ||
    (kind === "events" && scope === "container" && entry.scope === "runtime")
  const lines = journal.entries
    .filter(wanted)
    .map((entry) => `${iso(entry.at)} ${entry.scope} ${entry.text}\n`)
    .join("")
  const printed =
    kind === "logs" && (scope === "container" || scope === "all") && entrypoint?.log !== undefined
      ? tail(entrypoint.log)
      : { text: "", truncated: false }
  const content = lines + printed.text
  return {
    sandboxId: sandbox.id,
    kind,
    scope,
    delivery: "inline",
    contentType: "text/plain; charset=utf-8",
    content,
    contentLength: Buffer.byteLength(content),
    truncated: printed.truncated,
    ...(journal.forgotten === 0 ? {} : { warnings: [`${journal.forgotten} older entries are not kept any more`] })
  }
}
