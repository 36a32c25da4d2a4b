/** Interpreters of a sandbox, and the contexts that they keep. @internal */

import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import { ApiError, badRequest, conflict, contextNotFound, notImplemented, runtimeError } from "./apiError.js"
import type { Language } from "./code/drivers.js"
import { drivers, isLanguage } from "./code/drivers.js"
import { Interpreter } from "./code/interpreter.js"
import { uuid } from "./ids.js"
import type { Instance } from "./isolation.js"
import type { EventQueue } from "./output.js"
import type { Pipe, PipePool } from "./pipes.js"
import { closePipe } from "./pipes.js"
import type { Processes } from "./processes.js"
import { spawnError } from "./processes.js"

export interface CodeContext {
  readonly id: string
  readonly language: Language
}

interface Context extends CodeContext {
  readonly cwd: string | undefined
  /** Undefined where it has ended: the next code begins with a new one. */
  interpreter: Interpreter | undefined
  /** Somebody is about to run something in it. */
  taken: boolean
}

export interface Codes {
  readonly create: (language: string, cwd: string | undefined) => Effect.Effect<CodeContext, ApiError>
  readonly get: (id: string) => Effect.Effect<CodeContext, ApiError>
  readonly list: (language: string) => Effect.Effect<ReadonlyArray<CodeContext>, ApiError>
  readonly remove: (id: string) => Effect.Effect<void, ApiError>
  readonly removeAll: (language: string) => Effect.Effect<void, ApiError>
  /** In the language's own context where no id is given. */
  readonly run: (
    target: { readonly id: string | undefined; readonly language: string | undefined },
    code: string
  ) => Effect.Effect<EventQueue, ApiError>
  readonly interrupt: (id: string) => Effect.Effect<void, ApiError>
  readonly close: Effect.Effect<void>
}

/** Each is a process. */
const MAX_CONTEXTS = 64

const languageOf = (text: string): Effect.Effect<Language, ApiError> =>
  isLanguage(text)
    ? Effect.succeed(text)
    : Effect.fail(notImplemented(`the language ${JSON.stringify(text)} (there are ${Object.keys(drivers).join(", ")})`))

export const makeCodes = (options: {
  readonly instance: Instance
  readonly processes: Processes
  readonly pipes: PipePool
}): Effect.Effect<Codes> =>
  Effect.gen(function* () {
    const { instance, processes } = options
    const clock = yield* Effect.clock
    const contexts = new Map<string, Context>()
    const defaults = new Map<Language, Context>()
    const interpreters = new Set<Interpreter>()

    const find = (id: string) =>
      Effect.suspend(() => {
        const context = contexts.get(id)
        return context === undefined ? Effect.fail(contextNotFound(`Context ${id}`)) : Effect.succeed(context)
      })

    const spawn = (
      context: Context,
      [stdout, stderr, reports]: readonly [Pipe, Pipe, Pipe],
      ready: Deferred.Deferred<void, ApiError>
    ): Interpreter => {
      const { args, envs, program, script } = drivers[context.language]
      const process = processes.spawn({
        what: `interpreter ${context.id} (${context.language})`,
        argv: [instance.shell, "-c", script, "sh", ...args],
        cwd: context.cwd,
        envs,
        stdio: ["pipe", stdout.writer, stderr.writer, reports.writer]
      })
      const made = new Interpreter(
        context.language,
        process,
        { stdout, stderr, reports },
        () => clock.unsafeCurrentTimeMillis(),
        () => Deferred.unsafeDone(ready, Effect.void)
      )
      interpreters.add(made)
      context.interpreter = made
      processes.whenEnded(process, (ended) => {
        interpreters.delete(made)
        if (context.interpreter === made) context.interpreter = undefined
        made.exited(ended)
        Deferred.unsafeDone(
          ready,
          Effect.fail(
            ended.exitCode === 127
              ? new ApiError({
                  status: 501,
                  code: "NOT_IMPLEMENTED",
                  message: `${context.language} needs ${program}, which this sandbox has not`
                })
              : runtimeError(`${program} ended before it was ready: ${ended.error ?? "exit status 0"}`)
          )
        )
      })
      return made
    }

    const begin = (context: Context): Effect.Effect<Interpreter, ApiError> =>
      Effect.gen(function* () {
        const ready = yield* Deferred.make<void, ApiError>()
        const taken: Array<Pipe> = []
        const take = options.pipes.take.pipe(
          Effect.mapError((error) => runtimeError(error.message)),
          Effect.tap((pipe) => Effect.sync(() => taken.push(pipe)))
        )
        const close = () => {
          for (const pipe of taken) closePipe(pipe)
        }
        const pipes = yield* Effect.tapError(Effect.all([take, take, take]), () => Effect.sync(close))
        const made = yield* Effect.try({
          try: () => spawn(context, pipes, ready),
          catch: (cause) => {
            close()
            return spawnError(instance.root, context.cwd)(cause)
          }
        })
        yield* Effect.interruptible(Deferred.await(ready)).pipe(
          Effect.timeoutFail({
            duration: "30 seconds",
            onTimeout: () => runtimeError(`${context.language} was not ready within 30 seconds`)
          }),
          Effect.onError(() => processes.kill(made.process, "never ready"))
        )
        return made
      }).pipe(Effect.uninterruptible)

    const add = (language: Language, cwd: string | undefined): Effect.Effect<Context, ApiError> =>
      Effect.suspend(() => {
        if (contexts.size >= MAX_CONTEXTS)
          return Effect.fail(
            new ApiError({ status: 429, code: "TOO_MANY_CONTEXTS", message: `There are ${MAX_CONTEXTS} contexts` })
          )
        const context: Context = { id: uuid(), language, cwd, interpreter: undefined, taken: false }
        contexts.set(context.id, context)
        return Effect.succeed(context)
      })

    const create: Codes["create"] = (text, cwd) =>
      Effect.flatMap(languageOf(text), (language) =>
        Effect.flatMap(add(language, cwd), (context) =>
          Effect.as(
            Effect.onError(begin(context), () => Effect.sync(() => contexts.delete(context.id))),
            context
          )
        )
      )

    const defaultContext = (language: Language) =>
      Effect.suspend(() => {
        const known = defaults.get(language)
        if (known !== undefined && contexts.has(known.id)) return Effect.succeed(known)
        return Effect.tap(add(language, undefined), (context) => Effect.sync(() => defaults.set(language, context)))
      })

    const end = (context: Context) =>
      Effect.suspend(() => {
        contexts.delete(context.id)
        const { interpreter } = context
        return interpreter === undefined ? Effect.void : processes.kill(interpreter.process, "the context was deleted")
      })

    const listed = (text: string) =>
      Effect.map(languageOf(text), (language) =>
        [...contexts.values()].filter((context) => context.language === language)
      )

    const run: Codes["run"] = ({ id, language }, code) =>
      Effect.gen(function* () {
        const wanted = language === undefined ? undefined : yield* languageOf(language)
        const context = id !== undefined ? yield* find(id) : yield* defaultContext(wanted ?? "bash")
        if (wanted !== undefined && wanted !== context.language)
          return yield* badRequest(`context ${context.id} is one of ${context.language}, not ${wanted}`)
        if (context.taken || context.interpreter?.busy === true)
          return yield* conflict("CONTEXT_BUSY", `context ${context.id} runs something already`)
        context.taken = true
        const interpreter = yield* Effect.ensuring(
          context.interpreter === undefined ? begin(context) : Effect.succeed(context.interpreter),
          Effect.sync(() => {
            context.taken = false
          })
        )
        return interpreter.start(context.id, code)
      })

    return {
      create,
      get: find,
      list: listed,
      remove: (id) => Effect.flatMap(find(id), end),
      removeAll: (language) => Effect.flatMap(listed(language), Effect.forEach(end, { discard: true })),
      run,
      interrupt: (id) =>
        Effect.flatMap(find(id), ({ interpreter }) =>
          interpreter === undefined
            ? Effect.void
            : interpreter.interrupt(processes.signal(interpreter.process, "SIGINT"))
        ),
      close: Effect.sync(() => {
        for (const interpreter of interpreters) interpreter.close()
        interpreters.clear()
        contexts.clear()
      })
    }
  })
