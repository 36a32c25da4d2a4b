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
import type { Cursor, Json, LedgerEntry } from "./LedgerEvent.js"
import { EventName } from "./LedgerEvent.js"
import type { LanguageError } from "./SandboxError.js"
import { SandboxError } from "./SandboxError.js"

/**
 * By what an exec is known again.
 *
 * @since 0.1.0
 * @category models
 */
export interface Identity {
  readonly seq: number
  readonly command: string
  readonly cwd?: string | undefined
  readonly key?: string | undefined
  /** Of code; then `command` is the code. */
  readonly language?: string | undefined
}

/**
 * An exec that completed, as the ledger holds it.
 *
 * @since 0.1.0
 * @category models
 */
export interface RecordedExec extends Identity {
  readonly exitCode: number
  /** The generation that ran it. */
  readonly sandboxId: string
  /** Its `exec.started` and `exec.completed`: the output lies between them. */
  readonly started: Cursor
  readonly completed: Cursor
  /** True when part of the output was lost on the way, although the exit code is known. */
  readonly outputIncomplete: boolean
  /** The error of the language that ended code. */
  readonly codeError?: LanguageError | undefined
}

/**
 * A terminal that was open at the checkpoint. What was typed into it lies between the two places.
 *
 * @since 0.1.0
 * @category models
 */
export interface OpenTerminal extends Identity {
  readonly sandboxId: string
  readonly started: Cursor
  readonly checkpoint: Cursor
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ReplayIndex {
  /** Terminals that were still open, by sequence. */
  readonly terminals: ReadonlyMap<number, OpenTerminal>
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
export const empty: ReplayIndex = { bySeq: new Map(), byKey: new Map(), keyed: new Map(), terminals: new Map() }

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

const identityOf = (started: LedgerEntry): Identity | undefined => {
  const { payload } = started
  const command = stringField(payload, "cmd") ?? stringField(payload, "code")
  return command === undefined
    ? undefined
    : {
        seq: started.stepIdx,
        command,
        cwd: stringField(payload, "cwd"),
        key: stringField(payload, "key"),
        language: stringField(payload, "language")
      }
}

const languageError = (value: Json | undefined): LanguageError | undefined => {
  const name = stringField(value, "name")
  const traceback = jsonField(value, "traceback")
  return name === undefined
    ? undefined
    : {
        name,
        value: stringField(value, "value") ?? "",
        traceback: Array.isArray(traceback) ? traceback.filter((line) => typeof line === "string") : []
      }
}

const cursorOf = ({ id, ts }: LedgerEntry): Cursor => ({ ts, id })

interface Building {
  readonly bySeq: Map<number, RecordedExec>
  readonly byKey: Map<string, RecordedExec>
  readonly keyed: Map<number, RecordedExec>
  readonly terminals: Map<number, OpenTerminal>
}

/** Adds one generation's execs; later ones take the place of earlier ones of the same sequence or key. */
const addGeneration = (
  ledger: Context.Tag.Service<Ledger>,
  checkpoint: Checkpoint,
  index: Building
): Effect.Effect<void, LedgerError> => {
  const inFlight = jsonField(checkpoint.payload, "inFlight")
  const excluded = new Set(Array.isArray(inFlight) ? inFlight : [])
  const open = new Map<number, LedgerEntry>()

  const onEnd = (started: LedgerEntry, entry: LedgerEntry) => {
    const identity = identityOf(started)
    const exitCode = jsonField(entry.payload, "exitCode")
    if (identity === undefined || entry.event !== EventName.execCompleted || excluded.has(identity.seq)) return
    if (typeof exitCode !== "number" || !Number.isInteger(exitCode)) return
    const recorded: RecordedExec = {
      ...identity,
      exitCode,
      sandboxId: entry.sandboxId,
      started: cursorOf(started),
      completed: cursorOf(entry),
      outputIncomplete: jsonField(entry.payload, "outputIncomplete") === true,
      codeError: languageError(jsonField(entry.payload, "error"))
    }
    if (recorded.key === undefined) index.bySeq.set(recorded.seq, recorded)
    else {
      index.byKey.set(recorded.key, recorded)
      index.keyed.set(recorded.seq, recorded)
    }
  }

  const apply = (entry: LedgerEntry) => {
    const seq = entry.stepIdx
    if (entry.event === EventName.execStarted) {
      open.set(seq, entry)
      index.terminals.delete(seq)
      return
    }
    const started = open.get(seq)
    if (started === undefined) return
    open.delete(seq)
    onEnd(started, entry)
  }

  const addTerminals = () => {
    for (const started of open.values()) {
      const identity = identityOf(started)
      if (identity === undefined || jsonField(started.payload, "interactive") !== true) continue
      index.terminals.set(identity.seq, {
        ...identity,
        sandboxId: started.sandboxId,
        started: cursorOf(started),
        checkpoint: checkpoint.cursor
      })
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
      ),
      Effect.zipRight(Effect.sync(addTerminals))
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
      keyed: new Map<number, RecordedExec>(),
      terminals: new Map<number, OpenTerminal>()
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
export const lookup = (index: ReplayIndex, asked: Identity): Lookup => {
  const recorded =
    asked.key === undefined ? (index.bySeq.get(asked.seq) ?? index.keyed.get(asked.seq)) : index.byKey.get(asked.key)
  if (recorded === undefined) return { _tag: "Live" }
  return recorded.key === asked.key &&
    recorded.command === asked.command &&
    recorded.cwd === asked.cwd &&
    recorded.language === asked.language
    ? { _tag: "Replay", exec: recorded }
    : { _tag: "Diverged", recorded }
}
