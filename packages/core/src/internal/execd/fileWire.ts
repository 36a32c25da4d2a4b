/** @internal */
import * as Schema from "effect/Schema"
import type { FileInfo, Mode, Permission } from "../../Execd.js"
import { instant, nullish } from "../http/nullish.js"

const Info = Schema.Struct({
  path: nullish(Schema.String),
  type: nullish(Schema.String),
  size: nullish(Schema.Number),
  mode: nullish(Schema.Union(Schema.Number, Schema.String)),
  owner: nullish(Schema.String),
  group: nullish(Schema.String),
  modified_at: Schema.optional(Schema.Unknown),
  created_at: Schema.optional(Schema.Unknown)
})

/** @internal */
export const schemas = {
  InfoMap: Schema.NullOr(Schema.Record({ key: Schema.String, value: Info })),
  InfoList: Schema.NullOr(Schema.Array(Info)),
  Replaced: Schema.NullOr(
    Schema.Record({ key: Schema.String, value: Schema.Struct({ replacedCount: nullish(Schema.Number) }) })
  )
} as const

/** @internal */
export const fileInfo = (wire: typeof Info.Type, path: string): FileInfo => ({
  path: wire.path ?? path,
  type: wire.type ?? undefined,
  size: wire.size ?? 0,
  mode: String(wire.mode ?? ""),
  owner: wire.owner ?? "",
  group: wire.group ?? "",
  modifiedAt: instant(wire.modified_at),
  createdAt: instant(wire.created_at)
})

/**
 * A mode as the wire wants it: its octal digits, read as a decimal number. `undefined` for what is no mode.
 *
 * @internal
 */
export const modeDigits = (mode: Mode): number | undefined => {
  if (typeof mode === "number") {
    return Number.isInteger(mode) && mode >= 0 && mode <= 0o7777 ? Number(mode.toString(8)) : undefined
  }
  const digits = /^(?:0o)?([0-7]{1,5})$/.exec(mode.trim())?.[1]
  return digits !== undefined && Number.parseInt(digits, 8) <= 0o7777 ? Number(digits) : undefined
}

/** @internal */
export const permissionProblem = (path: string, permission: Permission): string | undefined =>
  path === ""
    ? "a path is empty"
    : permission.mode !== undefined && modeDigits(permission.mode) === undefined
      ? `the mode ${JSON.stringify(permission.mode)} of ${JSON.stringify(path)} is not octal, from 0 to 7777`
      : undefined

/** @internal */
export const permissionBody = (permission: Permission) => ({
  owner: permission.owner,
  group: permission.group,
  mode: permission.mode === undefined ? undefined : modeDigits(permission.mode)
})

/** @internal */
export const pathsProblem = (paths: ReadonlyArray<string>): string | undefined =>
  paths.includes("") ? "a path is empty" : undefined
