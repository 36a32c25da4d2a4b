import type { PlatformError } from "@effect/platform/Error"
import type { WatchEvent } from "@effect/platform/FileSystem"
import { WatchEventCreate, WatchEventRemove, WatchEventUpdate } from "@effect/platform/FileSystem"
import * as Chunk from "effect/Chunk"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { Where } from "./errors.js"
import type { Shell } from "./shell.js"

/** Two slashes never occur in what `find` prints of a name. */
const script = `[ -d "$1" ] || { [ -e "$1" ] || { ls -d -- "$1" >/dev/null; exit 1; }; cd -- "$(dirname -- "$1")" || exit 1
  stat -c '%n//%i %s %f %y %z' -- "$(basename -- "$1")" | base64; exit; }
cd -- "$1" || exit 1
find . -mindepth 1 DEPTH -exec stat -c '%n//%i %s %f %y %z' -- {} + 2>/dev/null | base64`

type Seen = ReadonlyMap<string, string>

const parse = (printed: string): Seen => {
  const seen = new Map<string, string>()
  for (const [, name = "", facts = ""] of printed.matchAll(/([\s\S]*?)\/\/([^\n]*)\n/g)) {
    seen.set(name.replace(/^\.\//, ""), facts)
  }
  return seen
}

const inode = (facts: string) => facts.slice(0, facts.indexOf(" "))

const changes = (before: Seen, after: Seen): Array<WatchEvent> => {
  const events: Array<WatchEvent> = []
  for (const path of before.keys()) if (!after.has(path)) events.push(WatchEventRemove({ path }))
  for (const [path, facts] of after) {
    const known = before.get(path)
    if (known === undefined || inode(known) !== inode(facts)) events.push(WatchEventCreate({ path }))
    else if (known !== facts) events.push(WatchEventUpdate({ path }))
  }
  return events
}

/** Looks again and again: what comes and goes between two looks is not seen. */
export const watch = (
  shell: Shell,
  where: Where,
  recursive: boolean,
  interval: Duration.DurationInput
): Stream.Stream<WatchEvent, PlatformError> =>
  Stream.unwrap(
    Effect.gen(function* () {
      const located = yield* shell.locate(where, where.path)
      const depth = recursive ? "" : "-maxdepth 1"
      const look = Effect.map(shell.text(where, script.replace("DEPTH", depth), located), parse)
      let before = yield* look
      return Stream.repeatEffectChunk(
        Effect.flatMap(Effect.sleep(interval), () => look).pipe(
          Effect.map((after) => {
            const events = changes(before, after)
            before = after
            return events
          }),
          Effect.map(Chunk.unsafeFromArray)
        )
      )
    })
  )
