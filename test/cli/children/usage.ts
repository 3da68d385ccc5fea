// `tollgate usage` as a process of its own.
import { main } from '../../../src/main.ts';

process.exitCode = await main(['usage', ...process.argv.slice(2)]);
