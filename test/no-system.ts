// The guard of the unit project: sockets and processes fail there, whichever way a test reaches them.
import childProcess, { ChildProcess } from 'node:child_process';
import dgram from 'node:dgram';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';

function refuse(what: string): () => never {
  return () => {
    throw new Error(
      `a unit test ${what}; use a helper that does so (test/helpers), or import its module, and test/projects.ts makes it a system test`,
    );
  };
}

net.Socket.prototype.connect = refuse('opens a connection');
net.Server.prototype.listen = refuse('listens on a socket');
dgram.Socket.prototype.bind = refuse('binds a socket');
dgram.Socket.prototype.send = refuse('sends a datagram');
Object.assign(ChildProcess.prototype, { spawn: refuse('starts a process') });
childProcess.spawnSync = refuse('starts a process');
childProcess.execSync = refuse('starts a process');
childProcess.execFileSync = refuse('starts a process');
syncBuiltinESMExports();
