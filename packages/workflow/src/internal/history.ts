/**
 * How far a run has come, as its session in the ledger tells.
 */
import type { Ledger } from "@sandglass/core/Ledger"
import type { LedgerError } from "@sandglass/core/LedgerError"
import type { Cursor, Json, LedgerEntry } from "@sandglass/core/LedgerEvent"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { EventName } from "./events.js"
import { field, numberField, stringField } from "./json.js"

/** What is known of a branch. */
export interface BranchHistory {
  /** The sandbox that its steps run in now. */
  readonly sandboxId: string
  readonly completed: boolean
  /** How many sandboxes it has had. */
  readonly generations: number
  /** Its steps, where they depend on the stage before. */
  readonly definition: ReadonlyArray<string> | undefined
  /** The sandboxes that its rollbacks have run in, where those are others; the last one last. */
  readonly rollbackIds: ReadonlyArray<string>
}

export interface History {
  readonly name: string
  readonly definition: ReadonlyArray<string>
  readonly resourceId: string | undefined
  readonly teamId: string | undefined
  /** How often it has been started and resumed. */
  readonly claims: number
  readonly branches: ReadonlyMap<string, BranchHistory>
  /** Set when a failure has been met: what is left to do is to undo and to close. */
  readonly failing: Json | undefined
  readonly ended: "completed" | "failed" | undefined
}

/** A branch by a word. */
export const branchKey = (stage: number, branch: number | undefined): string =>
  branch === undefined ? String(stage) : `${stage}.${branch}`

const stringsField = (value: Json | undefined, name: string): ReadonlyArray<string> | undefined => {
  const found = field(value, name)
  return Array.isArray(found) ? found.filter((line) => typeof line === "string") : undefined
}

const fold = (entries: ReadonlyArray<LedgerEntry>): History | undefined => {
  const [first] = entries
  if (first === undefined || first.event !== EventName.runStarted) return undefined
  const branches = new Map<string, BranchHistory>()
  let claims = 0
  let failing: Json | undefined
  let ended: History["ended"]
  for (const { branch, event, payload } of entries) {
    const key = branchKey(numberField(payload, "stage") ?? 0, branch)
    const known = branches.get(key)
    switch (event) {
      case EventName.runStarted:
      case EventName.runResumed:
        claims++
        break
      case EventName.runFailing:
        failing = payload ?? null
        break
      case EventName.runCompleted:
        ended = "completed"
        break
      case EventName.runFailed:
        ended = "failed"
        failing = payload ?? failing
        break
      case EventName.stageStarted: {
        const sandboxId = stringField(payload, "sandboxId")
        if (sandboxId === undefined) break
        const generations = (known?.generations ?? 0) + 1
        if (known !== undefined && field(payload, "rollback") === true) {
          branches.set(key, { ...known, generations, rollbackIds: [...known.rollbackIds, sandboxId] })
          break
        }
        const definition = stringsField(payload, "definition")
        branches.set(key, { sandboxId, completed: false, generations, definition, rollbackIds: [] })
        break
      }
      case EventName.stageCompleted:
        if (known !== undefined) branches.set(key, { ...known, completed: true })
    }
  }
  return {
    name: first.name,
    definition: stringsField(first.payload, "definition") ?? [],
    resourceId: stringField(first.payload, "resourceId"),
    teamId: stringField(first.payload, "teamId"),
    claims,
    branches,
    failing,
    ended
  }
}

type Service = Context.Tag.Service<Ledger>

/** Undefined where the ledger holds no such run. */
export const load = (ledger: Service, runId: string): Effect.Effect<History | undefined, LedgerError> =>
  Effect.map(Stream.runCollect(ledger.read({ sandboxId: runId })), (entries) => fold([...entries]))

/** Whether somebody has taken up the run after this place. */
export const isSuperseded = (ledger: Service, runId: string, claim: Cursor): Effect.Effect<boolean, LedgerError> =>
  Effect.map(
    Stream.runHead(ledger.read({ sandboxId: runId, events: [EventName.runResumed], after: claim, limit: 1 })),
    ({ _tag }) => _tag === "Some"
  )
