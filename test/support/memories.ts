/** Semantic memories on a database of their own. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { SqlSemanticMemory } from "@sandglass/memory"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"

/** A first and a second handle to a database that is there while the first one is. */
export const onPostgres = (
  fresh: Effect.Effect<Redacted.Redacted<string>, never, Scope.Scope>,
  options: SqlSemanticMemory.Options
) => {
  let url: Redacted.Redacted<string> | undefined
  const second = Layer.suspend(() =>
    Layer.provide(SqlSemanticMemory.layerWith(options), PgClient.layer({ url, maxConnections: 5 }))
  )
  const created = Layer.scopedDiscard(
    Effect.map(fresh, (there) => {
      url = there
    })
  )
  return { first: Layer.provide(second, created), second }
}
