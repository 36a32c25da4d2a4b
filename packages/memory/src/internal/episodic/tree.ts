/**
 * Sessions as trees: each below what it came from.
 */
import type { Ledger, SandboxDetails } from "@sandglass/core/Ledger"
import type * as Context from "effect/Context"
import type { EpisodicNode } from "../../EpisodicMemory.js"
import type { Sessions } from "./sessions.js"
import { byCursor, parentOf } from "./sessions.js"

interface Building extends EpisodicNode {
  readonly children: Array<Building>
}

/**
 * The parent of each session that is in the set. Where sessions are each other's ancestors the first of them, in the
 * given order, has none.
 */
const parentsOf = (sessions: ReadonlyArray<SandboxDetails>): ReadonlyMap<string, string> => {
  const places = new Map(sessions.map(({ sandboxId }, place) => [sandboxId, place]))
  const parents = new Map<string, string>()
  for (const session of sessions) {
    const parent = parentOf(session)
    if (parent !== undefined && places.has(parent)) parents.set(session.sandboxId, parent)
  }
  const settled = new Set<string>()
  for (const { sandboxId } of sessions) {
    const path = new Set<string>()
    let at: string | undefined = sandboxId
    while (at !== undefined && !settled.has(at) && !path.has(at)) {
      path.add(at)
      at = parents.get(at)
    }
    if (at !== undefined && path.has(at)) {
      const place = (id: string) => places.get(id) ?? 0
      let first = at
      for (let next = parents.get(at); next !== undefined && next !== at; next = parents.get(next)) {
        if (place(next) < place(first)) first = next
      }
      parents.delete(first)
    }
    for (const id of path) settled.add(id)
  }
  return parents
}

export const make = (
  ledger: Context.Tag.Service<Ledger>,
  own: Sessions,
  ancestors: Sessions
): ReadonlyArray<EpisodicNode> => {
  const sessions = [...own.values(), ...ancestors.values()].sort((a, b) => byCursor(a.cursor, b.cursor))
  const parents = parentsOf(sessions)
  const nodes = new Map<string, Building>()
  for (const session of sessions) {
    const { sandboxId } = session
    const node = { session, own: own.has(sandboxId), entries: ledger.read({ sandboxId }), children: [] }
    nodes.set(sandboxId, node)
  }
  const roots: Array<EpisodicNode> = []
  for (const [sandboxId, node] of nodes) {
    const parent = nodes.get(parents.get(sandboxId) ?? "")
    if (parent === undefined) roots.push(node)
    else parent.children.push(node)
  }
  return roots
}
