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
  /** Everything else that decides what runs: shell, session, user, names of variables, input. Absent in older ledgers. */
  readonly fingerprint?: string | undefined
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
  /** What tells it from another of the same sequence. Absent in older ledgers. */
  readonly execId?: string | undefined
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
  readonly execId?: string | undefined
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
  /** Execs without a key, by sequence: more than one where several handles were attached to the sandbox. */
  readonly bySeq: ReadonlyMap<number, ReadonlyArray<RecordedExec>>
  /** Execs with a key, in the order in which they completed. */
  readonly byKey: ReadonlyMap<string, ReadonlyArray<RecordedExec>>
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
        language: stringField(payload, "language"),
        fingerprint: stringField(payload, "fingerprint")
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
  readonly bySeq: Map<number, ReadonlyArray<RecordedExec>>
  readonly byKey: Map<string, ReadonlyArray<RecordedExec>>
  readonly keyed: Map<number, RecordedExec>
  readonly terminals: Map<number, OpenTerminal>
}

/** One run of an exec in a generation. */
interface Run {
  readonly started: LedgerEntry
  readonly identity: Identity
  readonly execId: string | undefined
  end: LedgerEntry | undefined
}

const sameIdentity = (a: Identity, b: Identity): boolean =>
  a.key === b.key &&
  a.command === b.command &&
  a.cwd === b.cwd &&
  a.language === b.language &&
  (a.fingerprint === undefined || b.fingerprint === undefined || a.fingerprint === b.fingerprint)

/** The runs of a session up to a checkpoint, in the order in which they started. */
const runsOf = (
  ledger: Context.Tag.Service<Ledger>,
  checkpoint: Checkpoint
): Effect.Effect<ReadonlyArray<Run>, LedgerError> =>
  Effect.suspend(() => {
    const runs: Array<Run> = []
    const open = new Map<string, Run>()
    const apply = (entry: LedgerEntry) => {
      const execId = stringField(entry.payload, "execId")
      const id = execId ?? `seq ${entry.stepIdx}`
      if (entry.event === EventName.execStarted) {
        const identity = identityOf(entry)
        if (identity === undefined) return
        const run: Run = { started: entry, identity, execId, end: undefined }
        runs.push(run)
        open.set(id, run)
        return
      }
      const run = open.get(id)
      if (run === undefined) return
      run.end = entry
      open.delete(id)
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
        Effect.as(runs)
      )
  })

/**
 * The place of each run in the program's order. A program that tries a failed command again counts the attempts; one that resumes it finds
 * the attempt that succeeded, so failed attempts that were followed by the same command are no places.
 */
const withPositions = (runs: ReadonlyArray<Run>): ReadonlyArray<readonly [position: number, run: Run]> => {
  const bySeq = new Map<number, Array<Run>>()
  for (const run of runs) {
    const group = bySeq.get(run.identity.seq)
    if (group === undefined) bySeq.set(run.identity.seq, [run])
    else group.push(run)
  }
  const positions: Array<readonly [number, Run]> = []
  let retried = 0
  for (const [seq, group] of [...bySeq].sort(([a], [b]) => a - b)) {
    const again = bySeq.get(seq + 1) ?? []
    const failed = group.every((run) => run.end?.event === EventName.execFailed)
    if (failed && group.some((run) => again.some((other) => sameIdentity(run.identity, other.identity)))) {
      retried++
      continue
    }
    for (const run of group) positions.push([seq - retried, run])
  }
  return positions
}

const isAfter = (a: Cursor, b: Cursor): boolean => a.ts > b.ts || (a.ts === b.ts && a.id > b.id)

/** Up to where what had completed is certainly part of a checkpoint's snapshot. */
const completedUntil = ({ cursor, payload }: Checkpoint): Cursor => {
  const recorded = jsonField(payload, "completedUntil")
  const ts = jsonField(recorded, "ts")
  const id = jsonField(recorded, "id")
  return typeof ts === "number" && typeof id === "number" ? { ts, id } : cursor
}

const toRecorded = ({ end, execId, identity, started }: Run, until: Cursor): RecordedExec | undefined => {
  if (end === undefined || end.event !== EventName.execCompleted || isAfter(cursorOf(end), until)) return undefined
  const exitCode = jsonField(end.payload, "exitCode")
  if (typeof exitCode !== "number" || !Number.isInteger(exitCode)) return undefined
  return {
    ...identity,
    exitCode,
    sandboxId: end.sandboxId,
    execId,
    started: cursorOf(started),
    completed: cursorOf(end),
    outputIncomplete: jsonField(end.payload, "outputIncomplete") === true,
    codeError: languageError(jsonField(end.payload, "error"))
  }
}

/** Forgets what a program that diverged left behind: what came from there on, and the keys that it had not asked for yet. */
const prune = (index: Building, from: number, keys: ReadonlySet<unknown>) => {
  for (const map of [index.bySeq, index.keyed, index.terminals]) {
    for (const seq of [...map.keys()]) if (seq >= from) map.delete(seq)
  }
  for (const key of [...index.byKey.keys()]) if (!keys.has(key)) index.byKey.delete(key)
}

/** Adds one generation's execs; later ones take the place of earlier ones of the same sequence. */
const addGeneration = (
  ledger: Context.Tag.Service<Ledger>,
  checkpoint: Checkpoint,
  index: Building
): Effect.Effect<void, LedgerError> =>
  Effect.map(runsOf(ledger, checkpoint), (runs) => {
    const positions = withPositions(runs)
    const until = completedUntil(checkpoint)
    for (const [position, { started }] of positions) {
      const diverged = jsonField(started.payload, "diverged")
      if (!Array.isArray(diverged)) continue
      prune(index, position, new Set(diverged))
      break
    }
    const own = new Set<number>()
    for (const [position, run] of positions) {
      index.terminals.delete(position)
      const recorded = toRecorded(run, until)
      if (recorded === undefined) {
        if (run.end === undefined && jsonField(run.started.payload, "interactive") === true) {
          index.terminals.set(position, {
            ...run.identity,
            sandboxId: run.started.sandboxId,
            execId: run.execId,
            started: cursorOf(run.started),
            checkpoint: checkpoint.cursor
          })
        }
      } else if (recorded.key === undefined) {
        index.bySeq.set(position, own.has(position) ? [...(index.bySeq.get(position) ?? []), recorded] : [recorded])
        own.add(position)
      } else {
        index.byKey.set(recorded.key, [...(index.byKey.get(recorded.key) ?? []), recorded])
        index.keyed.set(position, recorded)
      }
    }
  })

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
      bySeq: new Map<number, ReadonlyArray<RecordedExec>>(),
      byKey: new Map<string, ReadonlyArray<RecordedExec>>(),
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
 * Compares an exec that is about to run with what is recorded at its place; `occurrence` counts the completed execs of its key so far.
 *
 * @since 0.1.0
 * @category combinators
 */
export const lookup = (index: ReplayIndex, asked: Identity, occurrence: number): Lookup => {
  if (asked.key !== undefined) {
    const recorded = index.byKey.get(asked.key)?.[occurrence]
    if (recorded === undefined) return { _tag: "Live" }
    return sameIdentity(recorded, asked) ? { _tag: "Replay", exec: recorded } : { _tag: "Diverged", recorded }
  }
  const candidates = index.bySeq.get(asked.seq) ?? []
  const same = candidates.find((recorded) => sameIdentity(recorded, asked))
  if (same !== undefined) return { _tag: "Replay", exec: same }
  const other = candidates[0] ?? index.keyed.get(asked.seq)
  return other === undefined ? { _tag: "Live" } : { _tag: "Diverged", recorded: other }
}

/**
 * The last sequence that the generations before a sandbox hold up to where it branched off: a handle that attaches to it goes on behind
 * that.
 *
 * @since 0.1.0
 * @category combinators
 */
export const inheritedSequence = (
  ledger: Context.Tag.Service<Ledger>,
  sandboxId: string
): Effect.Effect<number, LedgerError | SandboxError> =>
  Effect.gen(function* () {
    const generations = yield* lineage(ledger, sandboxId)
    const parent = Option.flatMap(Option.fromNullable(generations[1]), (generation) => generation.until)
    if (Option.isNone(parent)) return 0
    const index = yield* load(ledger, parent.value)
    return Math.max(0, ...index.bySeq.keys(), ...index.keyed.keys(), ...index.terminals.keys())
  })
