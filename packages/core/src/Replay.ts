/**
 * The replay index: which execs of a session, and of the sessions it was resumed from, had completed before a checkpoint.
 * It holds where their output lies, not the output.
 *
 * @since 0.1.0
 */

import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { jsonField, stringField } from "./internal/json.js"
import type { Checkpoint, Ledger } from "./Ledger.js"
import type { LedgerError } from "./LedgerError.js"
import type { Cursor, LedgerEntry } from "./LedgerEvent.js"
import { EventName } from "./LedgerEvent.js"
import { SandboxError } from "./SandboxError.js"

/**
 * An exec that completed, as the ledger holds it.
 *
 * @since 0.1.0
 * @category models
 */
export interface RecordedExec {
  readonly seq: number
  readonly command: string
  readonly cwd?: string | undefined
  readonly key?: string | undefined
  readonly exitCode: number
  /** The generation that ran it. */
  readonly sandboxId: string
  /** Its `exec.started` and `exec.completed`: the output lies between them. */
  readonly started: Cursor
  readonly completed: Cursor
  /** True when part of the output was lost on the way, although the exit code is known. */
  readonly outputIncomplete: boolean
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ReplayIndex {
  /** Execs without a key, by sequence. */
  readonly bySeq: ReadonlyMap<number, RecordedExec>
  /** Execs with a key. */
  readonly byKey: ReadonlyMap<string, RecordedExec>
  /** Sequences that belong to execs with a key. */
  readonly keyed: ReadonlyMap<number, RecordedExec>
}

/**
 * @since 0.1.0
 * @category constructors
 */
export const empty: ReplayIndex = { bySeq: new Map(), byKey: new Map(), keyed: new Map() }

/**
 * The generations of a sandbox, newest first: itself, then what it was resumed from, each with the checkpoint at which the
 * next one branched off.
 */
interface Generation {
  readonly sandboxId: string
  readonly until: Option.Option<Checkpoint>
}

const lineage = (
  ledger: Context.Tag.Service<Ledger>,
  sandboxId: string
): Effect.Effect<ReadonlyArray<Generation>, LedgerError | SandboxError> =>
  Effect.gen(function* () {
    const generations: Array<Generation> = [{ sandboxId, until: Option.none() }]
    const seen = new Set([sandboxId])
    let current = sandboxId
    while (true) {
      const details = yield* ledger.sandbox(current)
      if (Option.isNone(details)) {
        return yield* new SandboxError({
          method: "Sandboxes.resume",
          reason: current === sandboxId ? "NotFound" : "LineageIncomplete",
          description: "the ledger holds no session of this id",
          sandboxId: current
        })
      }
      const parent = details.value.resumedFrom
      if (parent === undefined || seen.has(parent)) return generations
      const branchedAt = yield* ledger.checkpoints(parent).pipe(
        Stream.filter((checkpoint) => checkpoint.snapshotId === details.value.snapshotId),
        Stream.runLast
      )
      if (Option.isNone(branchedAt)) {
        return yield* new SandboxError({
          method: "Sandboxes.resume",
          reason: "LineageIncomplete",
          description: `it was resumed from ${parent}, whose checkpoint is no longer in the ledger`,
          sandboxId: current
        })
      }
      generations.push({ sandboxId: parent, until: branchedAt })
      seen.add(parent)
      current = parent
    }
  })

/**
 * The checkpoint to resume from: the newest of the sandbox, or the newest with this tag; where the sandbox has none of its
 * own, that of the sandbox it was resumed from.
 *
 * @since 0.1.0
 * @category combinators
 */
export const findCheckpoint = (
  ledger: Context.Tag.Service<Ledger>,
  sandboxId: string,
  tag?: string | undefined
): Effect.Effect<Option.Option<Checkpoint>, LedgerError | SandboxError> =>
  Effect.gen(function* () {
    for (const generation of yield* lineage(ledger, sandboxId)) {
      const found = yield* ledger.lastCheckpoint(generation.sandboxId, {
        tag,
        until: Option.getOrUndefined(generation.until)?.cursor
      })
      if (Option.isSome(found)) return found
    }
    return Option.none()
  })

interface Started {
  readonly entry: LedgerEntry
  readonly command: string
}

/** Adds one generation's completed execs; later ones take the place of earlier ones of the same sequence or key. */
const addGeneration = (
  ledger: Context.Tag.Service<Ledger>,
  checkpoint: Checkpoint,
  index: { bySeq: Map<number, RecordedExec>; byKey: Map<string, RecordedExec>; keyed: Map<number, RecordedExec> }
): Effect.Effect<void, LedgerError> => {
  const inFlight = jsonField(checkpoint.payload, "inFlight")
  const excluded = new Set(Array.isArray(inFlight) ? inFlight : [])
  const open = new Map<number, Started>()
  const apply = (entry: LedgerEntry) => {
    const seq = entry.stepIdx
    if (entry.event === EventName.execStarted) {
      const command = stringField(entry.payload, "cmd")
      if (command !== undefined && jsonField(entry.payload, "interactive") !== true) open.set(seq, { entry, command })
      return
    }
    const started = open.get(seq)
    open.delete(seq)
    const exitCode = jsonField(entry.payload, "exitCode")
    if (
      started === undefined ||
      entry.event !== EventName.execCompleted ||
      excluded.has(seq) ||
      typeof exitCode !== "number" ||
      !Number.isInteger(exitCode)
    )
      return
    const recorded: RecordedExec = {
      seq,
      command: started.command,
      cwd: stringField(started.entry.payload, "cwd"),
      key: stringField(started.entry.payload, "key"),
      exitCode,
      sandboxId: entry.sandboxId,
      started: { ts: started.entry.ts, id: started.entry.id },
      completed: { ts: entry.ts, id: entry.id },
      outputIncomplete: jsonField(entry.payload, "outputIncomplete") === true
    }
    if (recorded.key === undefined) index.bySeq.set(seq, recorded)
    else {
      index.byKey.set(recorded.key, recorded)
      index.keyed.set(seq, recorded)
    }
  }
  return ledger
    .read({
      sandboxId: checkpoint.sandboxId,
      events: [EventName.execStarted, EventName.execCompleted, EventName.execFailed],
      withoutOutput: true,
      until: checkpoint.cursor
    })
    .pipe(
      Stream.runForEachChunk((entries) =>
        Effect.sync(() => {
          for (const entry of entries) apply(entry)
        })
      )
    )
}

/**
 * The execs that had completed before a checkpoint, over the whole lineage of its sandbox.
 *
 * @since 0.1.0
 * @category constructors
 */
export const load = (
  ledger: Context.Tag.Service<Ledger>,
  checkpoint: Checkpoint
): Effect.Effect<ReplayIndex, LedgerError | SandboxError> =>
  Effect.gen(function* () {
    const generations = yield* lineage(ledger, checkpoint.sandboxId)
    const index = {
      bySeq: new Map<number, RecordedExec>(),
      byKey: new Map<string, RecordedExec>(),
      keyed: new Map<number, RecordedExec>()
    }
    for (const generation of [...generations].reverse()) {
      yield* addGeneration(
        ledger,
        Option.getOrElse(generation.until, () => checkpoint),
        index
      )
    }
    return index
  })

/**
 * What the index says of an exec that is about to run.
 *
 * @since 0.1.0
 * @category models
 */
export type Lookup =
  | { readonly _tag: "Replay"; readonly exec: RecordedExec }
  | { readonly _tag: "Live" }
  | { readonly _tag: "Diverged"; readonly recorded: RecordedExec }

/**
 * @since 0.1.0
 * @category combinators
 */
export const lookup = (
  index: ReplayIndex,
  asked: {
    readonly seq: number
    readonly command: string
    readonly cwd?: string | undefined
    readonly key?: string | undefined
  }
): Lookup => {
  const recorded =
    asked.key === undefined ? (index.bySeq.get(asked.seq) ?? index.keyed.get(asked.seq)) : index.byKey.get(asked.key)
  if (recorded === undefined) return { _tag: "Live" }
  return recorded.key === asked.key && recorded.command === asked.command && recorded.cwd === asked.cwd
    ? { _tag: "Replay", exec: recorded }
    : { _tag: "Diverged", recorded }
}
