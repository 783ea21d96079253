module extension

go 1.21
