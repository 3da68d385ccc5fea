// Holds the write lock of a SQLite file from the line `locked` until its standard input ends.
import { DatabaseSync } from 'node:sqlite';

const database = new DatabaseSync(process.argv[2] ?? '', { timeout: 5000 });
database.exec('begin immediate');
process.stdout.write('locked\n');
process.stdin.resume().on('end', () => {
  database.exec('rollback');
  database.close();
  process.stdout.write('released\n');
});
