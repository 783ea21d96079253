import { kind } from './kind.js';

export class Report {
  toJSON() {
    return { kind };
  }
}
