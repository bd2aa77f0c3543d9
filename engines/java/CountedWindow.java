package tidegauge;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The records of a counted window so far, or its output. counts: by input, in the order of the
 * stage's. most: the highest number of records that one of them announces. identities: what counts
 * once.
 */
final class CountedWindow extends Stored {
    private static final long serialVersionUID = 1;

    private List<Accumulator> accumulators;
    private long[] counts;
    private Set<String> identities;
    private long most;
    private long newestMs;
    private Row output;

    private CountedWindow() {}

    static CountedWindow of(Stage stage) {
        var made = new CountedWindow();
        made.accumulators = Accumulator.of(stage);
        made.counts = new long[stage.inputs.size()];
        made.identities = new HashSet<>();
        return made;
    }

    /** The output once it has been published, as one that a row completed; null before. */
    Row output() {
        return output;
    }

    void publish(Row made, Row last) {
        output = made.completedBy(last);
        newestMs = output.appendedMs;
    }

    /** Add a row; false if it counts once and is there already. */
    boolean add(Row row, Stage stage) {
        if (!identities.add(identity(stage, row))) return false;
        Accumulator.add(accumulators, stage, row);
        var place = 0;
        for (var input : stage.inputs) counts[place++] += row.isOf(input) ? 1 : 0;
        most = Math.max(most, (Long) row.get(stage.completeColumn));
        newestMs = Math.max(newestMs, row.appendedMs);
        return true;
    }

    boolean isComplete(Stage stage) {
        var due = most * (stage.sizeMs / stage.everyMs);
        for (var count : counts) if (count < due) return false;
        return true;
    }

    /** The columns of its output that the stage computes. */
    Map<String, Object> columns(Stage stage) {
        return Accumulator.results(accumulators, stage);
    }

    /** Identity of a row that is counted once. */
    private static String identity(Stage spec, Row row) {
        var text = new StringBuilder(32).append(row.source);
        text.append('\u0001').append(Math.floorDiv(row.eventMs, spec.everyMs));
        for (var name : spec.oncePer) text.append('\u0001').append(row.get(name));
        return text.toString();
    }

    @Override
    long appendedMs() {
        return newestMs;
    }

    @Override
    void write(DataOutput out) throws IOException {
        out.writeBoolean(output != null);
        if (output != null) {
            output.write(out);
            return;
        }
        out.writeInt(accumulators.size());
        for (var one : accumulators) one.write(out);
        out.writeInt(counts.length);
        for (var count : counts) out.writeLong(count);
        out.writeInt(identities.size());
        for (var one : identities) writeText(out, one);
        out.writeLong(most);
        out.writeLong(newestMs);
    }

    static CountedWindow read(DataInput in) throws IOException {
        var found = new CountedWindow();
        if (in.readBoolean()) {
            found.output = Row.read(in);
            found.newestMs = found.output.appendedMs;
            return found;
        }
        found.accumulators = new ArrayList<>();
        for (var left = in.readInt(); left > 0; left--) found.accumulators.add(Accumulator.read(in));
        found.counts = new long[in.readInt()];
        for (var i = 0; i < found.counts.length; i++) found.counts[i] = in.readLong();
        found.identities = new HashSet<>();
        for (var left = in.readInt(); left > 0; left--) found.identities.add(readText(in));
        found.most = in.readLong();
        found.newestMs = in.readLong();
        return found;
    }
}
