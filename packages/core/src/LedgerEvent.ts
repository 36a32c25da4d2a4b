/**
 * What is written to a ledger, and what is read back.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * Any JSON value.
 *
 * @since 0.1.0
 * @category models
 */
export type Json = null | boolean | number | string | ReadonlyArray<Json> | { readonly [key: string]: Json }

/**
 * @since 0.1.0
 * @category schemas
 */
export const Json: Schema.Schema<Json> = Schema.suspend(() =>
  Schema.Union(
    Schema.Null,
    Schema.Boolean,
    Schema.JsonNumber,
    Schema.String,
    Schema.Array(Json),
    Schema.Record({ key: Schema.String, value: Json })
  )
).annotations({ identifier: "Json" })

/**
 * The spellings of Sandglass's own events. A ledger holds any other event too: applications append their own.
 *
 * @since 0.1.0
 * @category models
 */
export const EventName = {
  sandboxCreated: "sandbox.created",
  sandboxClosed: "sandbox.closed",
  sandboxPaused: "sandbox.paused",
  sandboxResumed: "sandbox.resumed",
  checkpointCreated: "sandbox.checkpoint_created",
  egressRuleAdded: "egress.rule_added",
  egressRuleRemoved: "egress.rule_removed",
  credentialAdded: "credential.added",
  credentialReplaced: "credential.replaced",
  credentialRemoved: "credential.removed",
  credentialBound: "credential.bound",
  credentialRevoked: "credential.revoked",
  execStarted: "exec.started",
  execDetached: "exec.detached",
  execOutput: "exec.output",
  execResult: "exec.result",
  execCompleted: "exec.completed",
  execFailed: "exec.failed"
} as const

/**
 * An event to append.
 *
 * @since 0.1.0
 * @category schemas
 */
export const LedgerEvent = Schema.Struct({
  /** The sandbox (the session) it belongs to. Not empty. */
  sandboxId: Schema.NonEmptyString,
  /** The session's name, e.g. `ci`. Sandboxes of one purpose share a name. */
  name: Schema.String,
  /** The exec's `seq`; `-1` for events of the sandbox as a whole. */
  stepIdx: Schema.Int,
  /** The parallel branch of a workflow step. */
  branch: Schema.optional(Schema.Int),
  /** E.g. `exec.output`; see {@link EventName}. Not empty. */
  event: Schema.NonEmptyString,
  payload: Schema.optional(Json),
  error: Schema.optional(Schema.String)
}).annotations({ identifier: "LedgerEvent" })

/**
 * @since 0.1.0
 * @category models
 */
export interface LedgerEvent extends Schema.Schema.Type<typeof LedgerEvent> {}

/**
 * An event as it stands in the ledger. `id` grows with every append to one ledger; `ts` is epoch milliseconds.
 * The order within a session is `(ts, id)`.
 *
 * @since 0.1.0
 * @category schemas
 */
export const LedgerEntry = Schema.Struct({
  ...LedgerEvent.fields,
  id: Schema.Int,
  ts: Schema.Int
}).annotations({ identifier: "LedgerEntry" })

/**
 * @since 0.1.0
 * @category models
 */
export interface LedgerEntry extends Schema.Schema.Type<typeof LedgerEntry> {}

/**
 * A place in a session's order. Reading `after` a cursor starts with the entry that follows it.
 *
 * @since 0.1.0
 * @category schemas
 */
export const Cursor = Schema.Struct({ ts: Schema.Int, id: Schema.Int }).annotations({ identifier: "Cursor" })

/**
 * @since 0.1.0
 * @category models
 */
export interface Cursor extends Schema.Schema.Type<typeof Cursor> {}
