export * as DurableWorkflow from "./DurableWorkflow.js"
