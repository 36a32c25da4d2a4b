/** @internal */
import * as HttpBody from "@effect/platform/HttpBody"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { ExecdClient } from "../../Execd.js"
import { OpenSandboxError } from "../../OpenSandboxError.js"
import * as Http from "../http/client.js"
import { withConnection } from "../http/connections.js"
import { check } from "../http/portCaller.js"
import type { Caller } from "./caller.js"
import * as FileWire from "./fileWire.js"
import { multipart } from "./multipart.js"

const baseName = (path: string): string => path.slice(path.lastIndexOf("/") + 1)

/** @internal */
export const makeUpload =
  ({ connections, nextId, send, span, uploadTimeout, where }: Caller): ExecdClient["upload"] =>
  (files) => {
    const at = where("upload")
    return Effect.gen(function* () {
      if (files.length === 0) return
      for (const file of files) yield* check(at, FileWire.permissionProblem(file.path, file))
      const boundary = `sandglass-${yield* nextId}`
      // fetch reports a failing body as a failed connection, so it is remembered here
      let failed: OpenSandboxError | undefined
      const parts = files.map((file) => ({
        metadata: JSON.stringify({ path: file.path, ...FileWire.permissionBody(file) }),
        fileName: baseName(file.path),
        content:
          typeof file.content === "string" || file.content instanceof Uint8Array
            ? file.content
            : Stream.tapErrorCause(file.content, (cause) =>
                Effect.sync(() => {
                  failed ??= new OpenSandboxError({
                    ...at,
                    reason: "InvalidRequest",
                    description: `the content of ${JSON.stringify(file.path)} failed`,
                    cause
                  })
                })
              )
      }))
      yield* withConnection(connections, (connection) =>
        send(
          connection,
          at,
          HttpClientRequest.post("/files/upload", {
            body: HttpBody.stream(multipart(boundary, parts), `multipart/form-data; boundary=${boundary}`)
          }),
          Http.noBody,
          uploadTimeout
        ).pipe(Effect.mapError((error) => failed ?? error))
      )
    }).pipe(span("upload", { "files.count": files.length }))
  }
