export const kind = 'short';
