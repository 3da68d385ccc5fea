// `tollgate usage` as a process of its own.
import { runUsage } from '../../../src/cli/usage/usage-command.ts';

process.exitCode = await runUsage(process.argv.slice(2), process);
