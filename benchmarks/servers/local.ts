/** The local server, in the mode that is its argument: `namespaces` or `plain`. */
import { LocalOpenSandbox } from "@sandglass/local"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { serve } from "./serve.js"

const [mode] = process.argv.slice(2)

serve(
  Effect.map(
    LocalOpenSandbox.make({ mode: mode === "plain" ? "plain" : "namespaces" }),
    ({ apiKey, description, url }) => ({ url, apiKey: Redacted.value(apiKey), description })
  )
)
