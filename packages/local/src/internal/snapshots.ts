/** @internal */

import * as Fs from "node:fs"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type { ApiError } from "./apiError.js"
import { conflict, runtimeError, snapshotNotFound } from "./apiError.js"
import { uuid } from "./ids.js"
import type { Isolation } from "./isolation.js"
import type { ToolError } from "./process.js"
import { readFileOr } from "./process.js"

const Record = Schema.parseJson(
  Schema.Struct({
    id: Schema.String,
    sandboxId: Schema.String,
    name: Schema.optional(Schema.String),
    createdAt: Schema.Number,
    mode: Schema.String,
    entrypoint: Schema.NonEmptyArray(Schema.String)
  })
)
type Record = Schema.Schema.Type<typeof Record>

export interface Snapshot extends Record {
  state: "Creating" | "Ready" | "Failed"
  message: string
  lastTransitionAt: number
}

export interface CreateSnapshot {
  readonly sandboxId: string
  readonly name: string | undefined
  readonly entrypoint: readonly [string, ...Array<string>]
  /** Copies the sandbox's layers; what it copies stands still meanwhile. */
  readonly copy: (target: string) => Effect.Effect<void, ToolError>
  /** Run when that is over, however it ended. */
  readonly done: Effect.Effect<unknown>
}

export interface Snapshots {
  /** Answers at once; the copy goes on in the background, until the snapshot is `Ready` or `Failed`. */
  readonly create: (options: CreateSnapshot) => Effect.Effect<Snapshot, ApiError>
  readonly get: (id: string) => Effect.Effect<Snapshot, ApiError>
  readonly list: Effect.Effect<ReadonlyArray<Snapshot>>
  readonly remove: (id: string) => Effect.Effect<void, ApiError>
  readonly restore: (id: string, layers: string) => Effect.Effect<void, ApiError>
}

/** Snapshots found in `directory`, whose record is written last and only when they are complete, are there again after a restart. */
export const makeSnapshots = (directory: string, isolation: Isolation): Effect.Effect<Snapshots, never, Scope.Scope> =>
  Effect.gen(function* () {
    const clock = yield* Effect.clock
    const scope = yield* Effect.scope
    const snapshots = new Map<string, Snapshot>()

    yield* Effect.forEach(
      Fs.readdirSync(directory),
      (id) =>
        Schema.decodeUnknown(Record)(readFileOr(`${directory}/${id}/snapshot.json`, "")).pipe(
          Effect.map((record) =>
            snapshots.set(record.id, {
              ...record,
              state: "Ready",
              message: "The snapshot is ready",
              lastTransitionAt: record.createdAt
            })
          ),
          Effect.orElse(() => Effect.ignore(isolation.removeTree(`${directory}/${id}`)))
        ),
      { discard: true }
    )

    const get = (id: string) =>
      Effect.suspend(() => {
        const snapshot = snapshots.get(id)
        return snapshot === undefined ? Effect.fail(snapshotNotFound(id)) : Effect.succeed(snapshot)
      })

    const finish = (snapshot: Snapshot, state: "Ready" | "Failed", message: string) =>
      Effect.sync(() => {
        snapshot.state = state
        snapshot.message = message
        snapshot.lastTransitionAt = clock.unsafeCurrentTimeMillis()
      })

    const create = (options: CreateSnapshot) =>
      Effect.gen(function* () {
        const createdAt = clock.unsafeCurrentTimeMillis()
        const record: Record = {
          id: `snap-${uuid()}`,
          sandboxId: options.sandboxId,
          ...(options.name === undefined ? {} : { name: options.name }),
          createdAt,
          mode: isolation.mode,
          entrypoint: options.entrypoint
        }
        const snapshot: Snapshot = {
          ...record,
          state: "Creating",
          message: "The snapshot is being taken",
          lastTransitionAt: createdAt
        }
        const path = `${directory}/${record.id}`
        snapshots.set(record.id, snapshot)
        const encoded = yield* Effect.orDie(Schema.encode(Record)(record))
        yield* Effect.suspend(() => {
          Fs.mkdirSync(`${path}/layers`, { recursive: true })
          return options.copy(`${path}/layers`)
        }).pipe(
          Effect.zipRight(Effect.sync(() => Fs.writeFileSync(`${path}/snapshot.json`, encoded))),
          Effect.zipRight(finish(snapshot, "Ready", "The snapshot is ready")),
          Effect.catchAllCause((cause) =>
            Effect.zipRight(
              Effect.logWarning("sandglass-local: snapshot failed", cause),
              finish(
                snapshot,
                "Failed",
                Option.match(Cause.failureOption(cause), {
                  onNone: () => "The snapshot could not be taken",
                  onSome: (error) => `The snapshot could not be taken: ${error.message}`
                })
              )
            )
          ),
          Effect.interruptible,
          Effect.ensuring(options.done),
          Effect.forkIn(scope)
        )
        return snapshot
      }).pipe(Effect.uninterruptible)

    const remove = (id: string) =>
      Effect.gen(function* () {
        const snapshot = yield* get(id)
        if (snapshot.state === "Creating") {
          return yield* conflict("LOCAL::SNAPSHOT_NOT_READY", `Snapshot ${id} is still being created`)
        }
        snapshots.delete(id)
        yield* Effect.mapError(isolation.removeTree(`${directory}/${id}`), (error) => runtimeError(error.message))
      })

    const restore = (id: string, layers: string) =>
      Effect.gen(function* () {
        const snapshot = yield* get(id)
        if (snapshot.state !== "Ready")
          return yield* conflict("LOCAL::SNAPSHOT_NOT_READY", `Snapshot ${id} is ${snapshot.state}`)
        if (snapshot.mode !== isolation.mode) {
          return yield* conflict(
            "LOCAL::SNAPSHOT_INCOMPATIBLE",
            `Snapshot ${id} was taken in ${snapshot.mode} mode, this server runs in ${isolation.mode} mode`
          )
        }
        yield* Effect.mapError(isolation.copyTree(`${directory}/${id}/layers`, layers), (error) =>
          runtimeError(`restore: ${error.message}`)
        )
      })

    return { create, get, list: Effect.sync(() => [...snapshots.values()]), remove, restore }
  })
