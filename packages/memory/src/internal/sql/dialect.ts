/**
 * What differs between the databases.
 */
import type * as SqlClient from "@effect/sql/SqlClient"
import { identity } from "effect/Function"

export interface Dialect {
  readonly name: "sqlite" | "postgres"
  /** A statement's text, written with `?` for each parameter. */
  readonly text: (text: string) => string
  /** A column's value in a list of texts that arrives as one JSON parameter: its length is no part of the statement. */
  readonly inTexts: (column: string) => string
  /** The same for whole numbers. */
  readonly inIntegers: (column: string) => string
  readonly bytes: string
  /** A whole number that the database counts up, and never gives out twice. */
  readonly serial: string
}

const sqlite: Dialect = {
  name: "sqlite",
  text: identity,
  inTexts: (column) => `${column} IN (SELECT value FROM json_each(?))`,
  inIntegers: (column) => `${column} IN (SELECT value FROM json_each(?))`,
  bytes: "BLOB",
  serial: "INTEGER PRIMARY KEY AUTOINCREMENT"
}

const postgres: Dialect = {
  name: "postgres",
  text: (text) => {
    let position = 0
    return text.replaceAll("?", () => `$${++position}`)
  },
  inTexts: (column) => `${column} = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(? AS jsonb))))`,
  inIntegers: (column) => `${column} = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST(? AS jsonb)) AS bigint)))`,
  bytes: "BYTEA",
  serial: "BIGSERIAL PRIMARY KEY"
}

export const of = (sql: SqlClient.SqlClient): Dialect =>
  sql.onDialectOrElse({ pg: () => postgres, orElse: () => sqlite })
