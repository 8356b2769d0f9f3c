// What follows four neighbouring sums of a product of few rows, and where they go. The epilogue stands in front.

PL_INLINE void give_row(float (&v)[4], Y_T* y, const FewRowsArgs& a, int row, int column, int left EPILOGUE_PARAMS) {
  u32 rest = (u32)row;
  const int y3 = po_take(rest, a.rows[2]), y2 = po_take(rest, a.rows[1]), y1 = po_take(rest, a.rows[0]), y0 = (int)rest;
  epilogue(v, a.epilogue, y0, y1, y2, y3, column, left EPILOGUE_ARGS);
  Y_T* to = y + ((i64)y0 * a.y_row[0] + (i64)y1 * a.y_row[1] + (i64)y2 * a.y_row[2] + (i64)y3 * a.y_row[3] + column);
  po_store_part<Y_T, 4>(to, v, left);
}
