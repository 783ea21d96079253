import nothing from 'no-such-package-anywhere';
export function register() {}
