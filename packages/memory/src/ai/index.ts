export * as MemoryToolkit from "./MemoryToolkit.js"
