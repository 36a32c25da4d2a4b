/** @internal */
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { OpenSandbox, SnapshotInfo } from "../../OpenSandbox.js"
import * as Http from "../http/client.js"
import type { Where } from "../http/error.js"
import { invalidRequest } from "../http/error.js"
import type { Caller, Decode, Params } from "./caller.js"
import { sandboxPath, snapshotPath, span, where } from "./caller.js"
import { paged, pageSizeProblem } from "./paging.js"
import * as Wire from "./wire.js"

type Service = Context.Tag.Service<OpenSandbox>

const snapshotBody = (at: Where): Decode<SnapshotInfo> => {
  const decode = Http.jsonBody(at, Wire.schemas.Snapshot)
  return (response) => Effect.map(decode(response), Wire.snapshotInfo)
}

/** @internal */
export const makeSnapshots = ({
  call,
  createTimeout,
  retry
}: Caller): Pick<Service, "createSnapshot" | "getSnapshot" | "listSnapshots" | "deleteSnapshot"> => {
  const createSnapshot: Service["createSnapshot"] = (sandboxId, input = {}) => {
    const at = where("createSnapshot")
    return Effect.gen(function* () {
      if (input.name === "") return yield* Effect.fail(invalidRequest(at, "the name of the snapshot is empty"))
      const path = yield* sandboxPath(at, sandboxId, "/snapshots")
      return yield* call(at, "POST", path, snapshotBody(at), {
        body: () => ({ name: input.name }),
        timeout: createTimeout
      })
    }).pipe(
      Effect.tap(({ id }) => Effect.annotateCurrentSpan("snapshot.id", id)),
      span("createSnapshot", { "sandbox.id": sandboxId })
    )
  }

  const getSnapshot: Service["getSnapshot"] = (snapshotId) => {
    const at = where("getSnapshot")
    return snapshotPath(at, snapshotId).pipe(
      Effect.flatMap((path) => retry(call(at, "GET", path, snapshotBody(at)))),
      span("getSnapshot", { "snapshot.id": snapshotId })
    )
  }

  const listSnapshots: Service["listSnapshots"] = (filter = {}) =>
    Stream.suspend(() => {
      const at = where("listSnapshots")
      const problem = pageSizeProblem(filter.pageSize)
      if (problem !== undefined) return Stream.fail(invalidRequest(at, problem))
      const params: Params = [
        ...(filter.sandboxId === undefined ? [] : [["sandboxId", filter.sandboxId] as const]),
        ...(filter.states ?? []).map((state) => ["state", state] as const)
      ]
      const decode = Http.jsonBody(at, Wire.schemas.SnapshotPage)
      return paged(
        filter.pageSize,
        (page) => retry(call(at, "GET", "/snapshots", decode, { params: [...params, ...page] })),
        Wire.snapshotInfo
      )
    }).pipe(Stream.withSpan("OpenSandbox.listSnapshots", { captureStackTrace: false }))

  const deleteSnapshot: Service["deleteSnapshot"] = (snapshotId) => {
    const at = where("deleteSnapshot")
    return snapshotPath(at, snapshotId).pipe(
      Effect.flatMap((path) => retry(call(at, "DELETE", path, Http.noBody))),
      Effect.catchIf(
        (error) => error.reason === "NotFound",
        () => Effect.void
      ),
      span("deleteSnapshot", { "snapshot.id": snapshotId })
    )
  }

  return { createSnapshot, getSnapshot, listSnapshots, deleteSnapshot }
}
