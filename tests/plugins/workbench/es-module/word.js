export const word = 'done';
