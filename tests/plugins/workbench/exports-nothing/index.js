// There is no register here.
