// `tollgate keys` as a process of its own.
import { main } from '../../../src/main.ts';

process.exitCode = await main(['keys', ...process.argv.slice(2)]);
