/**
 * A process that works on conversations: `bun conversationWriter.ts <file or URL> <name> <task>...`, where a task is
 *
 * - `create:<id>`
 * - `store:<conversation>:<batches>:<size>`: each batch all or nothing; ends when the conversation is gone
 * - `patch:<conversation>:<field>:<times>`: a text field
 * - `delete:<prefix>:<count>:<pause>`: conversations `<prefix>0` and so on, with a pause in milliseconds before each
 *
 * Tasks run concurrently. It says `ready` when the database is open, and at the end how many batches it stored.
 */
import { Conversations } from "@sandglass/memory"
import { PgConversations } from "@sandglass/sql-pg"
import { SqliteConversations } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"

const [target = "", name = "", ...tasks] = process.argv.slice(2)

const live = target.startsWith("postgres")
  ? PgConversations.layer({ url: Redacted.make(target) })
  : SqliteConversations.layer({ filename: target })

let stored = 0

const run = (task: string) =>
  Effect.gen(function* () {
    const conversations = yield* Conversations.Conversations
    const [kind, id = "", second = "", third = ""] = task.split(":")
    switch (kind) {
      case "create":
        return yield* Effect.asVoid(
          conversations.createConversation({ id, userId: name, createdAt: 0, lastActivity: 0 })
        )
      case "store": {
        const size = Number(third)
        for (let batch = 0; batch < Number(second); batch++) {
          const messages = Array.from({ length: size }, (_, index) => ({
            id: `${id}/${name}/${batch}/${index}`,
            conversationId: id,
            role: "assistant" as const,
            content: `${batch}`,
            timestamp: batch * size + index + 1,
            usage: { promptTokens: 2, completionTokens: 1, totalTokens: 3, cacheReadTokens: index % 2 }
          }))
          yield* conversations.storeMessages(messages)
          stored += 1
        }
        return
      }
      case "patch":
        for (let time = 1; time <= Number(third); time++) {
          yield* conversations.updateConversation(id, { [second]: `${time}` })
        }
        return
      case "delete":
        for (let index = 0; index < Number(second); index++) {
          yield* Effect.sleep(Number(third))
          yield* conversations.deleteConversation(`${id}${index}`)
        }
        return
      default:
        return yield* Effect.dieMessage(`no task ${task}`)
    }
  }).pipe(Effect.catchTag("ConversationNotFound", () => Effect.void))

const program = Effect.gen(function* () {
  yield* Conversations.Conversations
  process.stdout.write("ready\n")
  yield* Effect.forEach(tasks, run, { concurrency: "unbounded", discard: true })
  process.stdout.write(`stored ${stored}\n`)
})

Effect.runPromise(Effect.provide(program, live)).then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  }
)
