import { spawnSync } from "node:child_process"
import * as Fs from "node:fs"
import * as Os from "node:os"
import { afterAll, assert, describe, it } from "@effect/vitest"
import type { ScriptRequest } from "../../packages/core/src/internal/exec/shell.js"
import * as Script from "../../packages/core/src/internal/exec/shell.js"

const shells: ReadonlyArray<readonly [string, ...Array<string>]> = [
  ["bash"],
  ["bash", "--posix"],
  ["dash"],
  ["busybox", "sh"]
]

const has = (program: string) => spawnSync(program, ["-c", ":"]).error === undefined

for (const [program, ...args] of shells) {
  describe.skipIf(!has(program))(`the scripts around commands, by ${[program, ...args].join(" ")}`, () => {
    let count = 0
    const made: Array<string> = []
    const temporary = () => {
      const directory = Fs.mkdtempSync(`${Os.tmpdir()}/sandglass-scripts-`)
      made.push(directory)
      return directory
    }
    afterAll(() => {
      for (const directory of made) Fs.rmSync(directory, { recursive: true, force: true })
    })
    const run = (directory: string, script: string, env: Record<string, string> = {}) => {
      const { signal, status, stderr, stdout } = spawnSync(program, [...args, "-c", script], {
        cwd: directory,
        env: { PATH: process.env.PATH ?? "", HOME: "/", TMPDIR: directory, ...env },
        encoding: "utf8",
        maxBuffer: 1 << 26
      })
      return { stdout, stderr, end: signal ?? status }
    }
    const scripted = (
      directory: string,
      request: Partial<ScriptRequest> & { readonly command: string },
      env: Record<string, string> = {}
    ) =>
      run(
        directory,
        Script.script({ nonce: `n${++count}`, variables: Object.keys(env), ...request }),
        Object.fromEntries(Object.entries(env).map(([name, value]) => [Script.variableOf(name), value]))
      )
    const createSession = (directory: string, options: Partial<Parameters<typeof Script.createSession>[0]> = {}) => {
      const made = run(
        directory,
        Script.createSession({ sandboxId: "s", name: undefined, from: 1, lineage: [], ...options })
      )
      assert.deepInclude(made, { stderr: "", end: 0 })
      const [how, name, folder = ""] = made.stdout.split("\n")
      return { how, name, place: { folder, initial: undefined } }
    }

    it("sessions keep directory and environment, whatever a command does", () => {
      const directory = temporary()
      const { place } = createSession(directory)
      const exec = (command: string, env = {}, cwd?: string) =>
        scripted(directory, { command, session: place, cwd }, env)
      const ended = (command: string, stdout: string, end: number | string, env = {}) => {
        const result = exec(command, env)
        assert.deepStrictEqual([result.stdout, result.end], [stdout, end], command)
      }
      ended("mkdir 'a b'; cd 'a b'; export V='it'\\''s \"q\" $(x)`y`\nline' A=1", "", 0)
      ended('echo "$V"; basename "$PWD"', 'it\'s "q" $(x)`y`\nline\na b\n', 0)
      ended("trap 'echo bye $?' EXIT; export A=2; exit 4", "bye 4\n", 4)
      ended("trap -- 'exit 5' 0; echo $A; export A=3; set -e; false", "2\n", 5)
      ended("trap 'echo no' EXIT; trap - EXIT; (trap 'echo own' EXIT); echo $A; export A=4", "own\n3\n", 0)
      ended("trap 'echo int' INT; kill -INT $$; echo $A; export A=5 PATH=/nowhere", "int\n4\n", 0)
      ended("echo $A $PATH $TMPDIR; export A=6", "5 /x /y\n", 0, { PATH: "/x", TMPDIR: "/y" })
      ended("echo $A; export A=7; set -uC; echo $nope", "6\n", program === "bash" ? 127 : 2)
      assert.strictEqual(exec("export A=8; echo 'oops").end, 2)
      ended("echo $A; export A=9; alias echo=false export=false; exec >&- 2>&-", "7\n", 0)
      ended("echo $A; export A=10 IFS=0123456789; exit 21", "9\n", 21)
      ended("readonly A PWD; export A PWD", "", 0)
      ended('unset IFS; cd /; cd "$OLDPWD"; A=$((A + 1)); echo $A', "11\n", 0)
      ended("echo $A; set -f; kill -9 $$", "11\n", "SIGKILL")
      const traced = exec("set -x; cd /")
      assert.deepInclude(traced, { stderr: "+ cd /\n", end: 0 })
      assert.deepInclude(exec("echo $PWD", {}, "usr"), { stdout: "/usr\n" })
      const missing = exec("echo ran", {}, "/not/there")
      assert.deepInclude(missing, { stdout: "", end: "SIGKILL" })
      assert.include(missing.stderr, `${Script.failureMark(`n${count}`)}the working directory cannot be entered\n`)
      ended(`: ${"'\"'".repeat(33_333)}; echo ok`, "ok\n", 0)
      assert.deepInclude(run(directory, Script.forgetSession(place)), { end: 0 })
      assert.include(exec("echo ran").stderr, "the session is closed")
    })

    it("a resumed session has what the container gives it now, and what the session changed", () => {
      const [before, after] = [temporary(), temporary()]
      const { place } = createSession(before)
      scripted(before, { session: place, command: "mkdir sub; cd sub; export HOME=/mine N='1\n2' IFS=_M; cd ../sub" })
      Fs.cpSync(before, after, { recursive: true })
      const { how, name, place: resumed } = createSession(after, { sandboxId: "t", lineage: ["none", "s"] })
      assert.deepStrictEqual([how, name], ["made", "1"])
      const seen = scripted(after, { session: resumed, command: 'pwd; echo "$TMPDIR $HOME $N"' })
      assert.deepInclude(seen, { stdout: `${after}/sub\n${after} /mine 1\n2\n`, end: 0 })
      assert.deepInclude(createSession(after, { sandboxId: "t" }), { how: "made", name: "2" })
      assert.deepInclude(createSession(after, { sandboxId: "t", name: "1" }), { how: "joined", place: resumed })
      assert.strictEqual(createSession(after, { sandboxId: "u", name: "1" }).how, "made")
    })

    it("a key runs its command once, as it is", () => {
      const directory = temporary()
      const exec = (key: string, command: string, env = {}) =>
        scripted(directory, { command, once: { sandboxId: "s", key, identity: [command] } }, env)
      for (const [key, command, stdout, end] of [
        ["a", "echo ran >>ran; cat ran; echo err >&2; exit 5", "ran\n", 5],
        ["b", "sleep 5 & echo started", "started\n", 0],
        ["c", "trap 'echo bye' EXIT; echo hi", "hi\nbye\n", 0],
        ["d", "exec echo hi", "hi\n", 0],
        ["e", "echo hi; kill -9 $$", "hi\n", "SIGKILL"],
        ["f", "echo hi; echo 'x", "hi\n", 2],
        ["g", `: ${"'\"'".repeat(33_333)}; echo ok`, "ok\n", 0]
      ] as const) {
        const began = Date.now()
        for (let again = 0; again < 2; again++) {
          const result = exec(key, command)
          assert.strictEqual(result.end, end, command)
          if (key !== "f") assert.strictEqual(result.stdout, stdout, command)
        }
        assert.isBelow(Date.now() - began, 4500, command)
      }
      assert.strictEqual(exec("a", "echo ran >>ran; cat ran; echo err >&2; exit 5").stderr, "err\n")
      assert.include(exec("a", "other").stderr, "the idempotency key was used for another command")
      assert.strictEqual(exec("h", "echo $PATH $TMPDIR", { PATH: "/x", TMPDIR: "/y" }).stdout, "/x /y\n")
      const large = exec("i", "head -c 3000000 /dev/zero")
      assert.strictEqual(large.stdout.length, 3_000_000)
      const { place } = createSession(directory)
      const both = { session: place, once: { sandboxId: "s", key: "j", identity: [] } }
      assert.deepInclude(scripted(directory, { ...both, command: "export A=1; trap 'echo bye' EXIT; exit 3" }), {
        stdout: "bye\n",
        end: 3
      })
      assert.strictEqual(scripted(directory, { session: place, command: "echo $A" }).stdout, "1\n")
    })

    it("a key whose command never began is free again, whatever ended its runner", () => {
      const directory = temporary()
      const folder = `${directory}/.sandglass-once/s`
      const request = (command: string, more: Partial<ScriptRequest> = {}) => ({
        command,
        once: { sandboxId: "s", key: "k", identity: [command, more.cwd] },
        ...more
      })
      const { place } = createSession(directory)
      const missing = scripted(directory, { session: place, ...request("echo ran", { cwd: `${directory}/later` }) })
      assert.deepInclude(missing, { stdout: "", end: "SIGKILL" })
      assert.include(missing.stderr, "the working directory cannot be entered")
      // Claimed by processes that are gone: one before it made anything, one before its command.
      const [claim = ""] = Fs.readdirSync(folder).filter((name) => !name.includes("~1~"))
      const link = Fs.readlinkSync(`${folder}/${claim}`)
      Fs.symlinkSync(link, `${folder}/${claim.replace("~1", "~2")}`)
      Fs.symlinkSync(link.replace(/.$/, "x"), `${folder}/${claim.replace("~1", "~3")}`)
      Fs.mkdirSync(`${folder}/${claim.replace("~1", "~3")}~d`)
      const command = "echo ran >>ran; echo once; sleep 0.3; exit 3"
      const scripts = Array.from({ length: 8 }, (_, n) =>
        Script.script({ nonce: `c${n}`, variables: [], ...request(command) })
      )
      const runs = scripts.map((script, n) => {
        Fs.writeFileSync(`${directory}/script${n}`, script)
        return `${[program, ...args].join(" ")} script${n} >out${n} 2>&1; echo $? >>out${n}`
      })
      run(directory, `${runs.map((each) => `(${each}) &`).join("\n")}\nwait`)
      for (const n of scripts.keys()) assert.strictEqual(Fs.readFileSync(`${directory}/out${n}`, "utf8"), "once\n3\n")
      assert.strictEqual(Fs.readFileSync(`${directory}/ran`, "utf8"), "ran\n")
      assert.include(
        scripted(directory, request("echo other")).stderr,
        "the idempotency key was used for another command"
      )
    })

    it("keys that look like one another's files are keys of their own", () => {
      const directory = temporary()
      for (const key of ["x", "x.d", "x.1", "x.d.d", "x~1", "x~1~d"]) {
        const request = { command: `echo ${key}`, once: { sandboxId: "s", key, identity: [key] } }
        for (let again = 0; again < 2; again++) {
          assert.deepInclude(scripted(directory, request), { stdout: `${key}\n`, stderr: "", end: 0 })
        }
      }
    })
  })
}
