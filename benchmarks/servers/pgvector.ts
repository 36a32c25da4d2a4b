/** A Postgres with pgvector, from npm packages alone: PGlite behind a socket. */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { pgliteDatabase } from "../../test/support/pglite.js"
import { serve } from "./serve.js"

serve(Effect.map(pgliteDatabase, (url) => ({ url: Redacted.value(url), apiKey: "", description: "PGlite" })))
