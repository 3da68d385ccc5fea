// `tollgate keys` as a process of its own.
import { runKeys } from '../../../src/cli/owners/keys-commands.ts';

process.exitCode = await runKeys(process.argv.slice(2), process);
