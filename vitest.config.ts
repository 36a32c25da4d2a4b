import { availableParallelism } from "node:os"
import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/support/postgresRun.ts"],
    // A process per file: a file cannot leak servers, timers or loaded SQLite extensions into the next, and a stuck one is killed.
    pool: "forks",
    // Vitest leaves a core idle by default, which on two cores means one file at a time; these tests wait more than they compute.
    minWorkers: 1,
    maxWorkers: Math.max(2, availableParallelism() - 1),
    // Time in tests is Effect's TestClock; the globals stay real.
    fakeTimers: { toFake: [] },
    testTimeout: 30_000,
    hookTimeout: 60_000,
    teardownTimeout: 5_000
  }
})
