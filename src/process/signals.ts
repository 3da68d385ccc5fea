// Signals, uncaught exceptions and unhandled rejections of the process. It listens from the start: by default, a signal during
// startup would end the process in the middle of a step.
import { closeSync, openSync } from 'node:fs';
import { constants } from 'node:os';

type StopReason = { readonly kind: 'signal'; readonly name: NodeJS.Signals } | Fault;

/** An uncaught exception. The state of the process is unknown after it. */
interface Fault {
  readonly kind: 'fault';
  readonly error: unknown;
}

interface SignalListeners {
  /** A second stop signal, after `stopped`: stop at once. */
  readonly onSecondStop: () => void;
  /** SIGHUP: reload the configuration. */
  readonly onReload: () => void;
  /** An unhandled rejection: one operation failed; the process state is still sound. */
  readonly onRejection: (reason: unknown) => void;
  /** Any uncaught exception after the first, which resolves `stopped`. */
  readonly onFault: (error: unknown) => void;
}

/** How long startup may continue after a stop signal. */
const START_GRACE_MS = 3_000;

/** Listens from construction. A serving process has one; with several workers only the primary does. */
export class Signals {
  /** Resolves at the first reason to stop. */
  readonly stopped: Promise<StopReason>;
  readonly #stop: (reason: StopReason) => void;
  #listeners: SignalListeners | undefined;
  #isStopped = false;
  #hasHangup = false;

  constructor() {
    const { promise, resolve } = Promise.withResolvers<StopReason>();
    this.stopped = promise;
    this.#stop = resolve;
    const onStop = (name: NodeJS.Signals) => {
      if (!this.#isStopped) {
        this.#stopFor({ kind: 'signal', name });
        this.#exitUnlessStarted(128 + constants.signals[name]);
      } else if (this.#listeners !== undefined) this.#listeners.onSecondStop();
      // A second signal during startup: there are no requests to drain.
      else process.exit(1);
    };
    process.on('SIGTERM', onStop).on('SIGINT', onStop);
    const hadTerminal = hasTerminal();
    process.on('SIGHUP', () => {
      // The terminal was closed, which is no request to reload.
      if (hadTerminal && !hasTerminal()) onStop('SIGHUP');
      else if (this.#listeners === undefined) this.#hasHangup = true;
      else this.#listeners.onReload();
    });
    process.on('uncaughtException', (error) => {
      if (this.#isStopped) this.#listeners?.onFault(error);
      else this.#stopFor({ kind: 'fault', error });
    });
    process.on('unhandledRejection', (reason) => {
      if (this.#listeners !== undefined) this.#listeners.onRejection(reason);
      else this.#stopFor({ kind: 'fault', error: reason });
    });
  }

  /** Whether a reason to stop has occurred. */
  get isStopped(): boolean {
    return this.#isStopped;
  }

  /** Sets the listeners when startup is complete, and delivers a SIGHUP that came earlier. */
  listen(listeners: SignalListeners): void {
    this.#listeners = listeners;
    if (this.#hasHangup) listeners.onReload();
    this.#hasHangup = false;
  }

  /** Exits when startup is still blocked after the grace period: process 1 could not be stopped otherwise. */
  #exitUnlessStarted(code: number): void {
    if (this.#listeners !== undefined) return;
    setTimeout(() => this.#listeners ?? process.exit(code), START_GRACE_MS).unref();
  }

  #stopFor(reason: StopReason): void {
    this.#isStopped = true;
    this.#stop(reason);
  }
}

/** Whether this process has a controlling terminal now. */
function hasTerminal(): boolean {
  try {
    closeSync(openSync('/dev/tty', 'r'));
    return true;
  } catch {
    return false;
  }
}
