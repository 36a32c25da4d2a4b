import type { PlatformError } from "@effect/platform/Error"
import type { File, OpenFlag, SeekMode, SizeInput } from "@effect/platform/FileSystem"
import { FileDescriptor, FileTypeId, Size } from "@effect/platform/FileSystem"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Contents from "./contents.js"
import * as Errors from "./errors.js"
import type { Shell } from "./shell.js"
import { stat } from "./stat.js"

/**
 * A file by its path: nothing of it stays open in the sandbox between two calls. The position is kept here.
 */
class FileImpl implements File {
  readonly [FileTypeId]: typeof FileTypeId
  private readonly oneAtATime = Effect.unsafeMakeSemaphore(1)
  private position = 0n

  constructor(
    private readonly shell: Shell,
    private readonly path: string,
    private readonly target: string,
    private readonly flag: OpenFlag,
    readonly fd: File.Descriptor
  ) {
    this[FileTypeId] = FileTypeId
  }

  get stat(): Effect.Effect<File.Info, PlatformError> {
    return stat(this.shell, this.where("stat"), this.target)
  }

  get sync(): Effect.Effect<void, PlatformError> {
    return Effect.asVoid(this.shell.run(this.where("sync"), `sync "$1" 2>/dev/null || sync`, this.target))
  }

  seek(offset: SizeInput, from: SeekMode): Effect.Effect<void> {
    return this.alone(
      Effect.sync(() => {
        this.position = from === "start" ? BigInt(offset) : this.position + BigInt(offset)
      })
    )
  }

  read(buffer: Uint8Array): Effect.Effect<Size, PlatformError> {
    return Effect.map(
      this.next("read", buffer.length),
      Option.match({
        onNone: () => Size(0),
        onSome: (bytes) => {
          buffer.set(bytes)
          return Size(bytes.length)
        }
      })
    )
  }

  readAlloc(size: SizeInput): Effect.Effect<Option.Option<Uint8Array>, PlatformError> {
    return this.next("readAlloc", Number(size))
  }

  truncate(length: SizeInput = 0): Effect.Effect<void, PlatformError> {
    const where = this.where("truncate")
    return this.writing(
      where,
      Effect.map(this.shell.run(where, `truncate -c -s "$2" -- "$1"`, this.target, String(length)), () => {
        if (!this.appends && this.position > BigInt(length)) this.position = BigInt(length)
      })
    )
  }

  write(buffer: Uint8Array): Effect.Effect<Size, PlatformError> {
    return Effect.as(this.put("write", buffer), Size(buffer.length))
  }

  writeAll(buffer: Uint8Array): Effect.Effect<void, PlatformError> {
    return this.put("writeAll", buffer)
  }

  private get appends(): boolean {
    return this.flag.startsWith("a")
  }

  private where(method: string): Errors.Where {
    return { module: "FileSystem", method, path: this.path }
  }

  private alone<A, E>(self: Effect.Effect<A, E>): Effect.Effect<A, E> {
    return this.oneAtATime.withPermits(1)(self)
  }

  private writing<A>(where: Errors.Where, self: Effect.Effect<A, PlatformError>): Effect.Effect<A, PlatformError> {
    return this.flag === "r" ? Effect.fail(Errors.fromCode(where, "EBADF", "opened for reading")) : this.alone(self)
  }

  private next(method: string, length: number): Effect.Effect<Option.Option<Uint8Array>, PlatformError> {
    const where = this.where(method)
    if (this.flag !== "r" && !this.flag.endsWith("+")) {
      return Effect.fail(Errors.fromCode(where, "EBADF", "opened for writing"))
    }
    return this.alone(
      Effect.suspend(() => Contents.readAt(this.shell, where, this.target, this.position, length)).pipe(
        Effect.tap((found) =>
          Effect.sync(() => {
            if (Option.isSome(found)) this.position += BigInt(found.value.length)
          })
        )
      )
    )
  }

  private put(method: string, data: Uint8Array): Effect.Effect<void, PlatformError> {
    const where = this.where(method)
    return this.writing(
      where,
      Effect.suspend(() =>
        data.length === 0
          ? Effect.void
          : this.appends
            ? Contents.append(this.shell, where, this.target, data)
            : Effect.map(Contents.writeAt(this.shell, where, this.target, data, this.position), () => {
                this.position += BigInt(data.length)
              })
      )
    )
  }
}

let descriptors = 0

export const open = (
  shell: Shell,
  where: Errors.Where,
  options: Contents.WriteOptions = {}
): Effect.Effect<File, PlatformError> =>
  Effect.gen(function* () {
    const target = yield* shell.locate(where, where.path)
    yield* Contents.touch(shell, where, target, options)
    // Nothing is open that it could be the number of.
    return new FileImpl(shell, where.path, target, options.flag ?? "r", FileDescriptor(++descriptors))
  })
