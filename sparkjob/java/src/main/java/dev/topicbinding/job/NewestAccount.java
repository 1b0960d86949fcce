package dev.topicbinding.job;

import java.nio.ByteBuffer;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.StructType;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The keyed half of the join: passes every accounts row on and marks those that are their key's newest so far.
 *
 * <p>Newest is the greatest (timestamp, partition, offset). The state of a key is that position and nothing else, so it does
 * not grow with the rows of the key, and a row costs the same whether its key has one row or a million. One pass over the
 * topic gives both the row for {@code accounts_ui} and its place in {@code final_ui}; an aggregation would need the topic
 * to be read a second time for the rows themselves.
 *
 * <p>Called from Python: {@code transform.newest_marked}.
 */
public final class NewestAccount extends StatefulProcessor<String, Row, Row> {
  private static final long serialVersionUID = 1L;
  private static final int POSITION_BYTES = Long.BYTES + Integer.BYTES + Long.BYTES;

  private final int flagsAt;
  private final int timestampAt;
  private final int partitionAt;
  private final int offsetAt;
  private final int newestFlag;
  private transient ValueState<byte[]> newest;

  private NewestAccount(StructType schema, int newestFlag) {
    this.flagsAt = schema.fieldIndex("flags");
    this.timestampAt = schema.fieldIndex("ts");
    this.partitionAt = schema.fieldIndex("part");
    this.offsetAt = schema.fieldIndex("off");
    this.newestFlag = newestFlag;
  }

  /**
   * @param rows accounts rows with a text column {@code keyColumn} that is empty for rows without a key
   * @return the same rows with {@code newestFlag} added to {@code flags} where it is due
   */
  public static Dataset<Row> mark(Dataset<Row> rows, String keyColumn, int newestFlag) {
    StructType schema = rows.schema();
    return rows.groupBy(functions.col(keyColumn))
        .as(Encoders.STRING(), Encoders.row(schema))
        .transformWithState(
            new NewestAccount(schema, newestFlag), TimeMode.None(), OutputMode.Update(), Encoders.row(schema));
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    newest = getHandle().getValueState("newest", Encoders.BINARY(), TTLConfig.NONE());
  }

  @Override
  public Iterator<Row> handleInputRows(String key, Iterator<Row> rows, TimerValues timerValues) {
    // A row without a key never matches, so there is nothing to remember about it.
    return key.isEmpty() ? rows : new Marking(rows);
  }

  /** Marks while it is read: a key's rows of one batch may be a million, so they are never held together. */
  private final class Marking extends AbstractIterator<Row> {
    private final Iterator<Row> rows;
    private final boolean known;
    private long timestamp;
    private int partition;
    private long offset;
    private boolean changed;

    Marking(Iterator<Row> rows) {
      this.rows = rows;
      byte[] state = newest.get();
      this.known = state != null;
      if (known) {
        ByteBuffer position = ByteBuffer.wrap(state);
        timestamp = position.getLong();
        partition = position.getInt();
        offset = position.getLong();
      }
    }

    @Override
    public boolean hasNext() {
      if (rows.hasNext()) {
        return true;
      }
      if (changed) {
        newest.update(
            ByteBuffer.allocate(POSITION_BYTES).putLong(timestamp).putInt(partition).putLong(offset).array());
        changed = false;
      }
      return false;
    }

    @Override
    public Row next() {
      Row row = rows.next();
      long rowTimestamp = row.getLong(timestampAt);
      int rowPartition = row.getInt(partitionAt);
      long rowOffset = row.getLong(offsetAt);
      if ((known || changed) && !isNewer(rowTimestamp, rowPartition, rowOffset)) {
        return row;
      }
      timestamp = rowTimestamp;
      partition = rowPartition;
      offset = rowOffset;
      changed = true;
      Object[] values = new Object[row.size()];
      for (int i = 0; i < values.length; i++) {
        values[i] = row.get(i);
      }
      values[flagsAt] = row.getInt(flagsAt) | newestFlag;
      return RowFactory.create(values);
    }

    private boolean isNewer(long rowTimestamp, int rowPartition, long rowOffset) {
      if (rowTimestamp != timestamp) {
        return rowTimestamp > timestamp;
      }
      return rowPartition != partition ? rowPartition > partition : rowOffset > offset;
    }
  }
}
