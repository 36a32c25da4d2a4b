/**
 * What the ledger holds of the steps of a sandbox, and of the sandboxes that it was resumed from.
 */
import type { Checkpoint, Ledger } from "@sandglass/core/Ledger"
import type { LedgerError } from "@sandglass/core/LedgerError"
import type { Cursor, Json, LedgerEntry } from "@sandglass/core/LedgerEvent"
import { EventName as CoreEvent } from "@sandglass/core/LedgerEvent"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { EventName, stepEvents } from "./events.js"
import { Output } from "./execute.js"
import { field, numberField, stringField } from "./json.js"

/** How a step ended. */
export interface StepRecord {
  readonly _tag: "Completed" | "Failed"
  readonly id: number
  readonly payload: Json | undefined
}

/** A command that has completed: its output lies between the two places. */
interface ExecRecord {
  readonly sandboxId: string
  readonly seq: number
  readonly execId: string | undefined
  readonly started: Cursor
  readonly completed: Cursor
}

/** By the step's id in the run, `instance`; execs by their key. */
export interface Records {
  readonly ended: ReadonlyMap<string, StepRecord>
  /** Begun, on files that are still there: whether they have ended or not. */
  readonly begun: ReadonlySet<string>
  readonly rolledBack: ReadonlySet<string>
  readonly execs: ReadonlyMap<string, ExecRecord>
}

export const none: Records = {
  ended: new Map(),
  begun: new Set(),
  rolledBack: new Set(),
  execs: new Map()
}

type Service = Context.Tag.Service<Ledger>

interface Generation {
  readonly sandboxId: string
  /** Where the next generation branched off; undefined: nowhere, all of it counts. */
  readonly until: Checkpoint | undefined
}

/** A sandbox and what it was resumed from, oldest first. */
const lineage = (
  ledger: Service,
  sandboxId: string,
  until: Checkpoint | undefined
): Effect.Effect<ReadonlyArray<Generation>, LedgerError> =>
  Effect.gen(function* () {
    const generations: Array<Generation> = [{ sandboxId, until }]
    const seen = new Set([sandboxId])
    for (let at = sandboxId; ; ) {
      const details = Option.getOrUndefined(yield* ledger.sandbox(at))
      const parent = details?.resumedFrom
      if (parent === undefined || seen.has(parent)) return generations.reverse()
      const checkpoint = yield* ledger.checkpoints(parent).pipe(
        Stream.filter(({ snapshotId }) => snapshotId === details?.snapshotId),
        Stream.runLast
      )
      generations.push({ sandboxId: parent, until: Option.getOrUndefined(checkpoint) })
      seen.add(parent)
      at = parent
    }
  })

const isAfter = (a: Cursor, b: Cursor): boolean => a.ts > b.ts || (a.ts === b.ts && a.id > b.id)

const cursorOf = ({ id, ts }: LedgerEntry): Cursor => ({ ts, id })

/** Up to where what had ended is certainly part of a checkpoint's snapshot. */
const covered = ({ cursor, payload }: Checkpoint): Cursor => {
  const recorded = payload["completedUntil"]
  const ts = numberField(recorded, "ts")
  const id = numberField(recorded, "id")
  return ts === undefined || id === undefined ? cursor : { ts, id }
}

const wanted = [...stepEvents, CoreEvent.execStarted, CoreEvent.execCompleted]

export interface LoadOptions {
  /** Only what this checkpoint of the sandbox covers. Default: everything. */
  readonly until?: Checkpoint | undefined
  /** True: also what no checkpoint covers, of whichever generation. Default false. */
  readonly all?: boolean | undefined
}

/** Reads what happened in a sandbox and in those that it was resumed from, as far as it still holds. */
export const load = (
  ledger: Service,
  sandboxId: string,
  options: LoadOptions = {}
): Effect.Effect<Records, LedgerError> =>
  Effect.gen(function* () {
    const ended = new Map<string, StepRecord>()
    const begun = new Set<string>()
    const rolledBack = new Set<string>()
    const execs = new Map<string, ExecRecord>()

    const apply = (entry: LedgerEntry, { sandboxId, until }: Generation, open: Map<string, LedgerEntry>) => {
      const { event, payload } = entry
      const holds = (snapshotId?: string) =>
        options.all === true ||
        until === undefined ||
        !isAfter(cursorOf(entry), covered(until)) ||
        (snapshotId !== undefined && snapshotId === until.snapshotId)
      if (event === CoreEvent.execStarted || event === CoreEvent.execCompleted) {
        const execId = stringField(payload, "execId")
        const name = execId ?? `seq ${entry.stepIdx}`
        if (event === CoreEvent.execStarted) {
          open.set(name, entry)
          return
        }
        const started = open.get(name)
        open.delete(name)
        const key = stringField(started?.payload, "key")
        if (started === undefined || key === undefined || !holds() || execs.has(key)) return
        execs.set(key, {
          sandboxId,
          seq: entry.stepIdx,
          execId,
          started: cursorOf(started),
          completed: cursorOf(entry)
        })
        return
      }
      const instance = stringField(payload, "step")
      if (instance === undefined) return
      if (event === EventName.stepRolledBack) rolledBack.add(instance)
      else if (event === EventName.stepStarted) begun.add(instance)
      else if (holds(stringField(payload, "snapshotId"))) {
        // An interrupted step has not ended.
        if (field(payload, "interrupted") === true) return
        const _tag = event === EventName.stepCompleted ? "Completed" : "Failed"
        // What was reported first stays, should two processes have taken part.
        if (ended.get(instance)?._tag !== "Completed") ended.set(instance, { _tag, id: entry.id, payload })
      }
    }

    for (const generation of yield* lineage(ledger, sandboxId, options.until)) {
      const open = new Map<string, LedgerEntry>()
      yield* ledger.read({ sandboxId: generation.sandboxId, events: wanted, withoutOutput: true }).pipe(
        Stream.runForEachChunk((entries) =>
          Effect.sync(() => {
            for (const entry of entries) apply(entry, generation, open)
          })
        )
      )
    }
    return { ended, begun, rolledBack, execs }
  })

/** What a recorded command printed; undefined where the ledger does not hold it. */
export const outputOf = (
  ledger: Service,
  { execs }: Records,
  key: string,
  limit: number
): Effect.Effect<Output["outcome"] | undefined, LedgerError> => {
  const exec = execs.get(key)
  if (exec === undefined) return Effect.succeed(undefined)
  const { completed, execId, sandboxId, seq, started } = exec
  return Effect.suspend(() => {
    const output = new Output(limit)
    return ledger
      .read({ sandboxId, stepIdx: seq, events: [CoreEvent.execOutput], after: started, until: completed })
      .pipe(
        Stream.runForEachChunk((entries) =>
          Effect.sync(() => {
            for (const { payload } of entries) {
              const own = stringField(payload, "execId")
              const stream = stringField(payload, "type")
              const text = stringField(payload, "text")
              if (own !== undefined && execId !== undefined && own !== execId) continue
              if (text !== undefined && (stream === "stdout" || stream === "stderr")) output.add([{ stream, text }])
            }
          })
        ),
        Effect.map(() => output.outcome)
      )
  })
}
