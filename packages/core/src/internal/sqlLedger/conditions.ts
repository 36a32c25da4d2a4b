/**
 * Conditions on events. They stand in statements as literals and always in the same words, because a partial index
 * serves the queries that repeat its condition.
 */
import { EventName } from "../../LedgerEvent.js"
import * as Legacy from "../ledger/legacy.js"

const literals = (texts: ReadonlyArray<string>): string => texts.map((text) => `'${text}'`).join(", ")

export const createdEvents = Legacy.spellings(EventName.sandboxCreated)

export const noOutput = `event NOT IN (${literals(Legacy.outputEvents)})`
export const created = `event IN (${literals(createdEvents)})`
export const milestone = `event IN (${literals(Legacy.milestones)})`

const closed = literals(Legacy.spellings(EventName.sandboxClosed))
const paused = literals(Legacy.spellings(EventName.sandboxPaused))
const switches = literals([EventName.sandboxPaused, EventName.sandboxResumed].flatMap(Legacy.spellings))

const checkpointed = `${milestone} AND event IN (${literals(Legacy.spellings(EventName.checkpointCreated))})`
const otherMilestone = `${milestone} AND event NOT IN (${literals(Legacy.spellings(EventName.checkpointCreated))})`

/** The rows of a session in the order in which they are removed. */
export const removalOrder: ReadonlyArray<string> = [checkpointed, `NOT (${milestone})`, otherMilestone]

/** A column of the first or the last of such rows of the session that a row belongs to. */
const lifecycle = (select: string, of: string, order: string): string =>
  `(SELECT ${select} FROM alineo_events AS life WHERE life.sandbox_id = alineo_events.sandbox_id AND life.${milestone} ` +
  `AND life.event IN (${of}) ORDER BY life.ts ${order}, life.id ${order} LIMIT 1)`

/** When the session was closed. */
export const closedAt = lifecycle("life.ts", closed, "ASC")
/** 1 or 0 by the last pause or resumption, NULL where there is none. */
export const isPaused = lifecycle(`CASE WHEN life.event IN (${paused}) THEN 1 ELSE 0 END`, switches, "DESC")
