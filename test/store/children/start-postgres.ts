// Starts a PostgreSQL server, pauses it if asked, prints its address and waits to be killed.
import { startPostgres } from '../../helpers/postgres.ts';

const server = await startPostgres();
const url = await server.createDatabase();
if (process.argv[2] === 'paused') server.pause();
process.stdout.write(`${url}\n`);
process.stdin.resume();
