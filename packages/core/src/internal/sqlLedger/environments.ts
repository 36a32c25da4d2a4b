/**
 * The table of prepared environments.
 */
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { LedgerStore } from "../../LedgerStore.js"
import type { Dialect } from "./dialect.js"
import type { EnvironmentRow } from "./rows.js"
import { toEnvironment } from "./rows.js"
import type { Transactions } from "./transactions.js"
import { execute } from "./transactions.js"

const columns = "name, snapshot_id, image, built_at"

export const make = (
  { param }: Dialect,
  { read, write }: Transactions
): Pick<LedgerStore, "environment" | "environments" | "putEnvironment" | "deleteEnvironment"> => ({
  environment: (name) =>
    Effect.map(
      read<EnvironmentRow>(`SELECT ${columns} FROM alineo_environments WHERE name = ${param(1)}`, [name]),
      (rows) => Option.map(Arr.head(rows), toEnvironment)
    ),
  environments: Effect.map(read<EnvironmentRow>(`SELECT ${columns} FROM alineo_environments`), Arr.map(toEnvironment)),
  putEnvironment: (record) =>
    write((connection) =>
      Effect.asVoid(
        execute(
          connection,
          `INSERT INTO alineo_environments (${columns}) VALUES (${param(1)}, ${param(2)}, ${param(3)}, ${param(4)}) ` +
            "ON CONFLICT (name) DO UPDATE SET snapshot_id = excluded.snapshot_id, image = excluded.image, " +
            "built_at = excluded.built_at",
          [record.name, record.snapshotId, record.image, record.builtAt]
        )
      )
    ),
  deleteEnvironment: (name) =>
    write((connection) =>
      Effect.map(
        execute(connection, `DELETE FROM alineo_environments WHERE name = ${param(1)} RETURNING name`, [name]),
        (rows) => rows.length > 0
      )
    )
})
