/** @internal */
import * as Effect from "effect/Effect"
import type { ExecdClient, FileInfo } from "../../Execd.js"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import * as Http from "../http/client.js"
import type { Where } from "../http/error.js"
import { check } from "../http/portCaller.js"
import type { Caller } from "./caller.js"
import { isCode } from "./caller.js"
import * as FileWire from "./fileWire.js"
import { pathsProblem } from "./fileWire.js"

/** Paths in batches that a request line can carry. */
const batches = (paths: ReadonlyArray<string>): ReadonlyArray<ReadonlyArray<string>> => {
  const out: Array<Array<string>> = []
  let size = Number.POSITIVE_INFINITY
  for (const path of paths) {
    const cost = new URLSearchParams({ path }).toString().length + 1
    if (size + cost > 6000) {
      out.push([])
      size = 0
    }
    out[out.length - 1]?.push(path)
    size += cost
  }
  return out
}

/** @internal */
export const makeFiles = ({
  get,
  remove,
  span,
  where,
  write
}: Caller): Pick<
  ExecdClient,
  | "info"
  | "search"
  | "move"
  | "replace"
  | "setPermissions"
  | "removeFiles"
  | "listDirectory"
  | "makeDirectories"
  | "removeDirectories"
> => {
  const info = (paths: ReadonlyArray<string>): Effect.Effect<ReadonlyMap<string, FileInfo>, OpenSandboxError> => {
    const at = where("info")
    return check(at, pathsProblem(paths)).pipe(
      Effect.zipRight(
        Effect.forEach(batches(paths), (batch) =>
          get(
            at,
            "/files/info",
            batch.map((path) => ["path", path] as const),
            Http.jsonBody(at, FileWire.schemas.InfoMap)
          )
        )
      ),
      Effect.map(
        (maps) =>
          new Map(
            maps.flatMap((map) =>
              Object.entries(map ?? {}).map(([path, wire]) => [path, FileWire.fileInfo(wire, path)] as const)
            )
          )
      ),
      span("info", { "files.count": paths.length })
    )
  }

  const infoList = (
    at: Where,
    path: string,
    params: ReadonlyArray<readonly [string, string]>
  ): Effect.Effect<ReadonlyArray<FileInfo>, OpenSandboxError> =>
    Effect.map(get(at, path, params, Http.jsonBody(at, FileWire.schemas.InfoList)), (list) =>
      (list ?? []).map((wire) => FileWire.fileInfo(wire, ""))
    )

  const search = (root: string, pattern?: string): Effect.Effect<ReadonlyArray<FileInfo>, OpenSandboxError> => {
    const at = where("search")
    return check(at, pathsProblem([root])).pipe(
      Effect.zipRight(
        infoList(at, "/files/search", [
          ["path", root],
          ...(pattern === undefined ? [] : [["pattern", pattern] as const])
        ])
      ),
      span("search")
    )
  }

  const move: ExecdClient["move"] = (moves) => {
    const at = where("move")
    return check(at, pathsProblem(moves.flatMap(({ from, to }) => [from, to]))).pipe(
      Effect.zipRight(
        Effect.suspend(() =>
          moves.length === 0
            ? Effect.void
            : write(at, "POST", "/files/mv", () => moves.map(({ from, to }) => ({ src: from, dest: to })), Http.noBody)
        )
      ),
      span("move", { "files.count": moves.length })
    )
  }

  const replace: ExecdClient["replace"] = (replacements) => {
    const at = where("replace")
    const entries = Object.entries(replacements)
    return Effect.gen(function* () {
      yield* check(at, pathsProblem(entries.map(([path]) => path)))
      for (const [path, { old }] of entries) {
        yield* check(at, old === "" ? `what to replace in ${JSON.stringify(path)} is empty` : undefined)
      }
      if (entries.length === 0) return new Map<string, number>()
      const counts = yield* write(
        at,
        "POST",
        "/files/replace",
        () => replacements,
        Http.jsonBody(at, FileWire.schemas.Replaced),
        [["verbose", "true"]]
      )
      return new Map(Object.entries(counts ?? {}).map(([path, { replacedCount }]) => [path, replacedCount ?? 0]))
    }).pipe(span("replace", { "files.count": entries.length }))
  }

  const setPermissions: ExecdClient["setPermissions"] = (permissions) => {
    const at = where("setPermissions")
    const entries = Object.entries(permissions)
    return Effect.gen(function* () {
      for (const [path, permission] of entries) yield* check(at, FileWire.permissionProblem(path, permission))
      if (entries.length === 0) return
      // the wire has no way to leave the mode alone
      const silent = entries.filter(([, { mode }]) => mode === undefined).map(([path]) => path)
      const known = silent.length === 0 ? undefined : yield* info(silent)
      const body = Object.fromEntries(
        entries.map(([path, permission]) => {
          const mode = permission.mode ?? known?.get(path)?.mode
          return [path, FileWire.permissionBody({ ...permission, mode: mode === "" ? undefined : mode })]
        })
      )
      yield* write(at, "POST", "/files/permissions", () => body, Http.noBody)
    }).pipe(span("setPermissions", { "files.count": entries.length }))
  }

  const removeAll = (method: string, path: string) => (paths: ReadonlyArray<string>) => {
    const at = where(method)
    return check(at, pathsProblem(paths)).pipe(
      Effect.zipRight(
        Effect.forEach(
          batches(paths),
          (batch) =>
            remove(
              at,
              path,
              batch.map((path) => ["path", path] as const)
            ),
          { discard: true }
        )
      ),
      span(method, { "files.count": paths.length })
    )
  }

  const listDirectory: ExecdClient["listDirectory"] = (path, { depth } = {}) => {
    const at = where("listDirectory")
    return check(
      at,
      pathsProblem([path]) ??
        (depth === undefined || isCode(depth) ? undefined : `depth is a whole number from 0 on, not ${depth}`)
    ).pipe(
      Effect.zipRight(
        infoList(at, "/directories/list", [
          ["path", path],
          ...(depth === undefined ? [] : [["depth", String(depth)] as const])
        ])
      ),
      span("listDirectory")
    )
  }

  const makeDirectories: ExecdClient["makeDirectories"] = (directories) => {
    const at = where("makeDirectories")
    const entries = Object.entries(directories)
    return Effect.gen(function* () {
      for (const [path, permission] of entries) yield* check(at, FileWire.permissionProblem(path, permission))
      if (entries.length === 0) return
      yield* write(
        at,
        "POST",
        "/directories",
        () =>
          Object.fromEntries(
            entries.map(([path, permission]) => [path, FileWire.permissionBody({ mode: "755", ...permission })])
          ),
        Http.noBody
      )
    }).pipe(span("makeDirectories", { "files.count": entries.length }))
  }

  return {
    info,
    search,
    move,
    replace,
    setPermissions,
    removeFiles: removeAll("removeFiles", "/files"),
    listDirectory,
    makeDirectories,
    removeDirectories: removeAll("removeDirectories", "/directories")
  }
}
